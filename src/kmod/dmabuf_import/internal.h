/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UPCIE_DMABUF_IMPORT_INTERNAL_H
#define UPCIE_DMABUF_IMPORT_INTERNAL_H

#include <linux/atomic.h>
#include <linux/dma-buf.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "dmabuf_import.h"

/* One open of the device. */
struct import_file {
	struct mutex lock; /* guards the next three, and whoever uses an import found in them */
	struct xarray imports; /* by handle */
	u32 next_handle;
	unsigned int count;
	atomic_t revoked; /* how many of the imports are */
	wait_queue_head_t wait;
};

/* One dma-buf attached as one PCI function. */
struct import {
	struct import_file *owner; /* outlives this */
	struct list_head node; /* in all_imports, under all_imports_lock; empty when detached */
	struct pci_dev *pdev;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
	struct sg_table *sgt; /* under the reservation lock; NULL when not mapped */
	u32 pin;
	u32 peer_to_peer;
	u32 addressing;
	bool revoked; /* set once, never cleared */
	u64 segment_count;
	struct upcie_dmabuf_segment *segments; /* a copy, since a revoked mapping is gone at once */
};

/* attachment.c */
struct import *import_create(struct import_file *owner, const struct upcie_dmabuf_import *request);
void import_destroy(struct import *import);
int import_watch_pci(void);
void import_unwatch_pci(void);

/* addresses.c */
int reach_all_memory(struct pci_dev *pdev);
u32 addressing_of(struct device *dev);
void judge_kinds(struct upcie_dmabuf_segment *segments, u64 count);

#endif
