/* Opens and closes the library that its argument names, three times. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** arguments) {
  for (int i = 0; count == 2 && i < 3; ++i) {
    void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 1;
    void* const address = dlsym(library, "beside_is_found");
    int (*found)(void);
    memcpy(&found, &address, sizeof found);
    puts(found() ? "found" : "not found");
    if (dlclose(library) != 0) return puts(dlerror()), 1;
  }
  return 0;
}
