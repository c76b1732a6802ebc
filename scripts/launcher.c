/* The launcher of the archive of `make bundle`: finds the directory into which it was unpacked, and runs the Python in it.

   It is statically linked, so that it needs nothing on the machine. The file has two names:

     bin/kubewright    runs kubewright, and passes on the name by which it was called
     libexec/python3   is Python's sys.executable, with which kubewright starts its daemon

   Python is started through the archive's own copy of the C library's loader, because the kernel would use the loader at the path that is written in
   the program. The copy is called libexec/kubewright, so that ps shows this name. */

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
  /* without /proc, use the path that was passed to the kernel */
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
  *next++ = "-I"; /* ignore the user's own Python: variables, directories */
  *next++ = "-Xutf8"; /* the machine may have no locales, or locales that this C library does not know */
  if (!python) {
    *next++ = "-c";
    *next++ = (char *)RUN;
    *next++ = argc > 0 ? argv[0] : "kubewright";
  }
  for (int index = 1; index < argc; index++) *next++ = argv[index];
  execv(loader, args);
  return fail("cannot start", loader);
}
