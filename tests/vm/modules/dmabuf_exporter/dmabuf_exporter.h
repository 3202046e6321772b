/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR BSD-3-Clause */
/* A dma-buf exporter for tests: any scatter list, and manners that no exporter of the VM has. */
#ifndef UPCIE_DMABUF_EXPORTER_H
#define UPCIE_DMABUF_EXPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXPORTER_PIN_REFUSED 1 /* pinning is not supported */
#define EXPORTER_PIN_FAILS 2 /* it fails: EBUSY */
#define EXPORTER_PIN_MOVES 4 /* it moves the memory, as a GPU's driver does from RAM to VRAM */
#define EXPORTER_MAP_FAILS 8 /* ENOSPC */
#define EXPORTER_NO_PEER 16 /* finds no peer-to-peer path */

struct exporter_entry {
	__u64 address;
	__u64 length; /* below 2^32 */
};

struct exporter_create {
	__u32 manners;
	__u32 count;
	__u64 entries; /* of struct exporter_entry */
	__u64 size; /* that the dma-buf says it has */
};

struct exporter_state {
	__s32 fd; /* in */
	__u32 attached;
	__u32 pinned;
	__u32 mapped;
};

#define EXPORTER_CREATE _IOW(0xBD, 0, struct exporter_create) /* answers with the fd */
#define EXPORTER_STATE _IOWR(0xBD, 1, struct exporter_state)
#define EXPORTER_MOVE _IOW(0xBD, 2, struct exporter_state) /* all importers are told */

#endif
