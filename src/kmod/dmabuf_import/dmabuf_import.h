/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR BSD-3-Clause */
/*
 * What /dev/upcie_dmabuf_import answers: where the bytes of a dma-buf are, as seen by one PCI
 * function.
 *
 * All lengths and addresses are in bytes. Every field named reserved, and every flags field, must
 * be 0: a later version may give it a meaning. A request that fails changes nothing.
 */
#ifndef UPCIE_DMABUF_IMPORT_H
#define UPCIE_DMABUF_IMPORT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define UPCIE_DMABUF_NODE "/dev/upcie_dmabuf_import"

/* Rises when a structure or a meaning below changes. */
#define UPCIE_DMABUF_API_VERSION 1

/* Handles that one open file can hold at a time. */
#define UPCIE_DMABUF_MOST_HANDLES 4096

#define UPCIE_DMABUF_EXPORTER_LENGTH 32

struct upcie_dmabuf_version {
	__u32 api_version; /* out: UPCIE_DMABUF_API_VERSION of the module */
	__u32 most_handles; /* out: UPCIE_DMABUF_MOST_HANDLES of the module */
};

/* upcie_dmabuf_import.pin: what keeps the memory in its place */
/* Nothing: the exporter refuses to pin, and may move or revoke it. */
#define UPCIE_DMABUF_PIN_REFUSED 0
/* The exporter has pinned it. */
#define UPCIE_DMABUF_PIN_PINNED 1
/* The exporter knows no pinning: it never moves memory, but may revoke it. */
#define UPCIE_DMABUF_PIN_STATIC 2

/* upcie_dmabuf_import.addressing: what the addresses of the segments are */
/* As the function must put them on the bus: no IOMMU, or an identity domain is live. */
#define UPCIE_DMABUF_ADDRESSING_PHYSICAL 0
/*
 * Those of the function's default DMA domain. They are wrong in every other domain, so for vfio and
 * iommufd, which attach their own.
 */
#define UPCIE_DMABUF_ADDRESSING_DEFAULT_DOMAIN 1
/*
 * Perhaps those of bounce buffers, which hold copies: the function's DMA mask does not reach all
 * memory.
 */
#define UPCIE_DMABUF_ADDRESSING_BOUNCED 2

struct upcie_dmabuf_import {
	__s32 fd; /* in: a dma-buf; may be closed afterwards */
	__u32 flags; /* in: 0 */
	__u32 domain; /* in: the PCI function that will do the DMA; at most 0x7fffffff */
	__u32 bus; /* in: at most 255 */
	__u32 device; /* in: at most 31 */
	__u32 function; /* in: at most 7 */
	__u32 handle; /* out: never 0; means something in this open file alone */
	__u32 pin; /* out: UPCIE_DMABUF_PIN_* */
	__u32 peer_to_peer; /* out: 1 when addresses of device memory may be answered */
	__u32 addressing; /* out: UPCIE_DMABUF_ADDRESSING_* */
	__u32 revoked; /* out: 1 when it was revoked while it was imported */
	__u32 reserved; /* in: 0 */
	__u64 size; /* out: of the dma-buf */
	__u64 segment_count; /* out */
	char exporter[UPCIE_DMABUF_EXPORTER_LENGTH]; /* out: ends in a NUL */
};

/* upcie_dmabuf_segment.kind: judged by the address, and only where addressing is physical */
#define UPCIE_DMABUF_KIND_UNKNOWN 0
#define UPCIE_DMABUF_KIND_RAM 1 /* system RAM */
#define UPCIE_DMABUF_KIND_BAR 2 /* inside a BAR of a PCI function */

struct upcie_dmabuf_segment {
	__u64 address;
	__u64 length;
	__u32 kind; /* UPCIE_DMABUF_KIND_* */
	__u32 reserved; /* 0 */
};

struct upcie_dmabuf_segments {
	__u32 handle; /* in */
	__u32 flags; /* in: 0 */
	__u64 first; /* in: index of the first segment wanted, at most segment_count */
	__u64 entries; /* in: address of a struct upcie_dmabuf_segment[]; unread at capacity 0 */
	__u64 capacity; /* in: how many entries the array has; no more are written */
	__u64 written; /* out */
	__u64 total; /* out: segment_count */
};

struct upcie_dmabuf_release {
	__u32 handle; /* in */
	__u32 reserved; /* in: 0 */
};

#define UPCIE_DMABUF_IOCTL_TYPE 0xBC

/* Errors: EFAULT. */
#define UPCIE_DMABUF_IOCTL_VERSION _IOR(UPCIE_DMABUF_IOCTL_TYPE, 0, struct upcie_dmabuf_version)
/*
 * Errors: EINVAL (a field out of its range, or not a dma-buf), EBADF (fd is not open), ENXIO (no
 * such PCI function), EMFILE (most_handles), E2BIG (more segments than can be told), EAGAIN (the
 * function's IOMMU domain changed meanwhile), EINTR, ENOMEM, EFAULT; and what the exporter says:
 * EOPNOTSUPP or EINVAL (this function cannot reach that memory), EIO (it cannot be mapped for this
 * function), ENODEV (revoked).
 */
#define UPCIE_DMABUF_IOCTL_IMPORT _IOWR(UPCIE_DMABUF_IOCTL_TYPE, 1, struct upcie_dmabuf_import)
/*
 * Errors: ENOENT (no such handle in this open file), EINVAL (flags, first), ESTALE (revoked),
 * EFAULT.
 */
#define UPCIE_DMABUF_IOCTL_SEGMENTS _IOWR(UPCIE_DMABUF_IOCTL_TYPE, 2, struct upcie_dmabuf_segments)
/* Errors: ENOENT (no such handle in this open file), EINVAL (reserved), EFAULT. */
#define UPCIE_DMABUF_IOCTL_RELEASE _IOW(UPCIE_DMABUF_IOCTL_TYPE, 3, struct upcie_dmabuf_release)

/*
 * poll(): POLLIN and POLLPRI as long as a handle of this open file is revoked and not released.
 * Which one it is, each handle says: SEGMENTS with capacity 0 gives ESTALE.
 */

#endif
