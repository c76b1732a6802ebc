/* What the archive of `make bundle` is started by: it finds the directory that it was unpacked into, and runs the Python in it.

   Statically linked, because nothing on the machine may be needed. It is there twice, as one file with two names:

     bin/kubewright    runs kubewright, which is told the name that it was called by
     libexec/python3   is what Python takes for itself (sys.executable): kubewright starts its daemon with it

   Python is started by the C library's own loader: the kernel would look for one at the place that is written in the program. The loader's
   copy is called libexec/kubewright, so that this is what ps shows. */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The first argument is the name that the user typed, instead of Python's -c. */
static const char RUN[] = "import sys; del sys.argv[0]; from kubewright.cli.main import run; run()";

static int fail(const char *what, const char *path) {
  fprintf(stderr, "error: %s %s: %s\n", what, path, strerror(errno));
  fprintf(stderr, "hint: unpack the archive of kubewright again\n");
  return 127;
}

/* Cut the last part off a path and return it. */
static char *cut(char *path) {
  char *slash = strrchr(path, '/');
  if (slash == NULL) return path + strlen(path);
  *slash = '\0';
  return slash + 1;
}

static char *below(const char *root, const char *name) {
  char *path = malloc(strlen(root) + strlen(name) + 2);
  if (path == NULL) exit(fail("no memory for", name));
  sprintf(path, "%s/%s", root, name);
  return path;
}

int main(int argc, char **argv) {
  static char self[PATH_MAX];
  const char *called = (const char *)getauxval(AT_EXECFN);
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  /* without /proc the name is known that the kernel was given */
  if (length < 0 && (called == NULL || realpath(called, self) == NULL)) return fail("cannot find", called == NULL ? "myself" : called);
  cut(self);
  int python = strcmp(cut(self), "libexec") == 0;
  if (strpbrk(self, ":;$") != NULL) {
    fprintf(stderr, "error: the loader of programs takes none of the characters : ; $ in the path %s\n", self);
    fprintf(stderr, "hint: move the directory of kubewright to another place\n");
    return 127;
  }
  char **args = calloc((size_t)argc + 12, sizeof *args), **next = args;
  if (args == NULL) return fail("no memory for", self);
  char *loader = below(self, "libexec/kubewright");
  *next++ = loader;
  *next++ = "--library-path";
  *next++ = below(self, "lib");
  *next++ = "--argv0";
  *next++ = below(self, "libexec/python3");
  *next++ = below(self, "libexec/" PYTHON);
  *next++ = "-I"; /* nothing of the user's own Python: variables, directories */
  *next++ = "-Xutf8"; /* the machine may have no locales, or other ones than this C library knows */
  if (!python) {
    *next++ = "-c";
    *next++ = (char *)RUN;
    *next++ = argc > 0 ? argv[0] : "kubewright";
  }
  for (int index = 1; index < argc; index++) *next++ = argv[index];
  execv(loader, args);
  return fail("cannot start", loader);
}
