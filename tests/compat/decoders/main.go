// Command decoders reads texts as Kubernetes' components in Go do, with the standard library, and prints what it reads.
//
// Standard input contains batches: the number of texts, and for each one byte for its kind, its length, and the text (numbers have four bytes, big
// endian). A batch is read completely before it is answered with one line for each text: "-" if it is refused, otherwise its parts in hexadecimal.
// A text of the kind 'K' is the key with which join requests are encrypted.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
)

var readers = map[byte]func([]byte) (string, error){
	'B': readBase64,
	'P': readBlocks,
	'R': readRequest,
	'C': readCertificates,
	'F': readKubeconfig,
	'I': readClusterInfo,
	'J': readJoinRequest,
	'K': readJoinKey,
}

var errRefused = errors.New("refused")

type text struct {
	kind    byte
	content []byte
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriterSize(os.Stdout, 1<<20)
	for {
		batch, err := readBatch(in)
		if err == io.EOF {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		for _, one := range batch {
			line, err := readers[one.kind](one.content)
			if err != nil {
				line = "-"
			}
			out.WriteString(line)
			out.WriteByte('\n')
		}
		if err := out.Flush(); err != nil {
			log.Fatal(err)
		}
	}
}

func readBatch(in io.Reader) ([]text, error) {
	var count uint32
	if err := binary.Read(in, binary.BigEndian, &count); err != nil {
		return nil, err
	}
	batch := make([]text, count)
	for i := range batch {
		var head [5]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, err
		}
		batch[i] = text{head[0], make([]byte, binary.BigEndian.Uint32(head[1:]))}
		if _, err := io.ReadFull(in, batch[i].content); err != nil {
			return nil, err
		}
	}
	return batch, nil
}

// A line has named parts, each a list of values in hexadecimal.
type line struct{ parts []string }

func (l *line) add(name string, values ...string) {
	for i, value := range values {
		values[i] = hex.EncodeToString([]byte(value))
	}
	l.parts = append(l.parts, name+"="+strings.Join(values, ","))
}

func (l *line) flag(name string, value bool) {
	l.parts = append(l.parts, name+"="+strconv.FormatBool(value))
}

func (l *line) String() string { return strings.Join(l.parts, " ") }

func copied(values []string) []string { return append([]string(nil), values...) }

func readBase64(content []byte) (string, error) {
	found, err := base64.StdEncoding.DecodeString(string(content))
	var out line
	out.add("bytes", string(found))
	return out.String(), err
}

func blocks(content []byte) []*pem.Block {
	var found []*pem.Block
	for {
		block, rest := pem.Decode(content)
		if block == nil {
			return found
		}
		found, content = append(found, block), rest
	}
}

func readBlocks(content []byte) (string, error) {
	var out line
	for _, block := range blocks(content) {
		out.add("block", block.Type, string(block.Bytes))
		out.flag("headers", len(block.Headers) > 0)
	}
	return out.String(), nil
}
