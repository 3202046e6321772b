// SPDX-License-Identifier: BSD-3-Clause
// Counts ioctls on NVIDIA's nodes from inside of a program: what upcie_rm_trace records is held against it, and it
// shares no code with the tracer. COUNT_TO=FILE LD_PRELOAD=./count_ioctls.so PROGRAM writes FILE.PID when the program
// ends.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned long escapes[256];
static unsigned long uvm[65536];
static unsigned long uvm_start[2]; // UVM_INITIALIZE and UVM_DEINITIALIZE

int ioctl(int fd, unsigned long request, ...) {
    static int (*real)(int, unsigned long, void*);
    if (real == NULL) {
        real = (int (*)(int, unsigned long, void*))dlsym(RTLD_NEXT, "ioctl");
    }
    va_list list;
    va_start(list, request);
    void* const argument = va_arg(list, void*);
    va_end(list);
    char path[64];
    char target[256] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length > 0) {
        target[length] = 0;
    }
    if (strstr(target, "/dev/nvidia-uvm") != NULL) {
        unsigned long* const place = request >> 16 != 0 ? &uvm_start[(request & 2) / 2] : &uvm[request & 0xffff];
        __sync_fetch_and_add(place, 1);
    } else if (strstr(target, "/dev/nvidia") != NULL) {
        __sync_fetch_and_add(&escapes[request & 0xff], 1);
    }
    return real(fd, request, argument);
}

__attribute__((destructor)) static void write_counts(void) {
    char name[512];
    const char* const wanted = getenv("COUNT_TO");
    if (wanted == NULL) {
        return;
    }
    snprintf(name, sizeof name, "%s.%d", wanted, (int)getpid());
    FILE* const out = fopen(name, "w");
    if (out == NULL) {
        return;
    }
    for (int i = 0; i < 256; ++i) {
        if (escapes[i] != 0) {
            fprintf(out, "escape 0x%x %lu\n", i, escapes[i]);
        }
    }
    for (int i = 0; i < 65536; ++i) {
        if (uvm[i] != 0) {
            fprintf(out, "uvm 0x%x %lu\n", i, uvm[i]);
        }
    }
    for (int i = 0; i < 2; ++i) {
        if (uvm_start[i] != 0) {
            fprintf(out, "uvm 0x%x %lu\n", 0x30000001 + i, uvm_start[i]);
        }
    }
    fclose(out);
}
