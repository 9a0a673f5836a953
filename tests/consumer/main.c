/* What a C program can ask of the version, of the header it was compiled with and of the library that it got. */
#include <stdio.h>

#include "kernelwright/c.h"

#if KERNELWRIGHT_VERSION_NUMBER < KERNELWRIGHT_MAKE_VERSION(0, 1, 0)
#error "the installed header is older than the package"
#endif

int main(void) {
  printf("header %d.%d.%d, library %s\n", KERNELWRIGHT_VERSION_MAJOR, KERNELWRIGHT_VERSION_MINOR,
         KERNELWRIGHT_VERSION_PATCH, kernelwright_version());
  return kernelwright_version_number() == KERNELWRIGHT_VERSION_NUMBER ? 0 : 1;
}
