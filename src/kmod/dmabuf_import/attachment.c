// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attaching to a dma-buf as a PCI function, reading its scatter list, and letting go: when asked,
 * when the exporter revokes it, and when the function leaves.
 *
 * Locks, outer first: all_imports_lock, the dma-buf's reservation lock. The exporter calls
 * import_invalidate() with the latter held.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "internal.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif

static DEFINE_MUTEX(all_imports_lock);
static LIST_HEAD(all_imports);
/* Functions that are being removed and can still be found, by pointer; under all_imports_lock. */
static DEFINE_XARRAY(leaving);

static void import_mark_revoked(struct import *import)
{
	if (import->revoked)
		return;
	WRITE_ONCE(import->revoked, true);
	atomic_inc(&import->owner->revoked);
	wake_up_poll(&import->owner->wait, EPOLLIN | EPOLLPRI);
}

/* Under the reservation lock. */
static void import_unmap(struct import *import)
{
	if (import->sgt)
		dma_buf_unmap_attachment(import->attachment, import->sgt, DMA_BIDIRECTIONAL);
	import->sgt = NULL;
}

/*
 * The memory moves or goes away. The exporter may wait for the mapping to end (vfio does, before a
 * reset), so it ends here and not when userspace has heard of it. Before the mapping was made there
 * is nothing to revoke: pinning itself may move the memory.
 */
static void import_invalidate(struct dma_buf_attachment *attachment)
{
	struct import *import = attachment->importer_priv;

	dma_resv_assert_held(attachment->dmabuf->resv);
	if (!import->sgt)
		return;
	import_unmap(import);
	import_mark_revoked(import);
}

static const struct dma_buf_attach_ops import_attach_ops = {
	.allow_peer2peer = true,
#ifdef UPCIE_HAVE_INVALIDATE_MAPPINGS
	.invalidate_mappings = import_invalidate,
#else
	.move_notify = import_invalidate,
#endif
};

/* Under all_imports_lock. May be called again. */
static void import_detach(struct import *import)
{
	if (list_empty(&import->node))
		return;
	list_del_init(&import->node);
	dma_resv_lock(import->dmabuf->resv, NULL);
	import_unmap(import);
	if (import->pin == UPCIE_DMABUF_PIN_PINNED)
		dma_buf_unpin(import->attachment);
	dma_resv_unlock(import->dmabuf->resv);
	dma_buf_detach(import->dmabuf, import->attachment);
	import->attachment = NULL;
}

void import_destroy(struct import *import)
{
	mutex_lock(&all_imports_lock);
	import_detach(import);
	mutex_unlock(&all_imports_lock);
	/* Nobody can revoke it any more. */
	if (import->revoked)
		atomic_dec(&import->owner->revoked);
	dma_buf_put(import->dmabuf);
	pci_dev_put(import->pdev);
	kvfree(import->segments);
	kfree(import);
}

/* Under the reservation lock. */
static int import_pin(struct import *import)
{
	int error;

	if (!dma_buf_is_dynamic(import->dmabuf)) {
		import->pin = UPCIE_DMABUF_PIN_STATIC;
		return 0;
	}
	error = dma_buf_pin(import->attachment);
	if (!error)
		import->pin = UPCIE_DMABUF_PIN_PINNED;
	return error == -EOPNOTSUPP ? 0 : error;
}

/* Under the reservation lock. */
static int import_copy_segments(struct import *import)
{
	struct scatterlist *sg;
	u64 count = 0;
	int i;

	for_each_sgtable_dma_sg(import->sgt, sg, i)
		count++;
	/* kvmalloc() allocates no more than that. */
	if (count > INT_MAX / sizeof(*import->segments))
		return -E2BIG;
	import->segments = kvcalloc(count, sizeof(*import->segments), GFP_KERNEL_ACCOUNT);
	if (!import->segments)
		return -ENOMEM;
	for_each_sgtable_dma_sg(import->sgt, sg, i) {
		import->segments[i].address = sg_dma_address(sg);
		import->segments[i].length = sg_dma_len(sg);
	}
	import->segment_count = count;
	return 0;
}

static int import_map(struct import *import)
{
	struct sg_table *sgt;
	int error;

	error = dma_resv_lock_interruptible(import->dmabuf->resv, NULL);
	if (error)
		return error;
	error = import_pin(import);
	if (error)
		goto unlock;
	import->addressing = addressing_of(&import->pdev->dev);
	sgt = dma_buf_map_attachment(import->attachment, DMA_BIDIRECTIONAL);
	if (IS_ERR(sgt)) {
		error = PTR_ERR(sgt);
		goto unlock;
	}
	import->sgt = sgt;
	import->peer_to_peer = import->attachment->peer2peer;
	/* What was true of the domain must have been so while the addresses were made. */
	if (addressing_of(&import->pdev->dev) != import->addressing)
		error = -EAGAIN;
	else
		error = import_copy_segments(import);
unlock:
	dma_resv_unlock(import->dmabuf->resv);
	return error;
}

/* Finds the function and attaches; a function that is leaving is none. */
static int import_attach(struct import *import, const struct upcie_dmabuf_import *request)
{
	unsigned int devfn = PCI_DEVFN(request->device, request->function);
	struct dma_buf_attachment *attachment;
	struct pci_dev *again;
	int error;

	import->pdev = pci_get_domain_bus_and_slot(request->domain, request->bus, devfn);
	if (!import->pdev)
		return -ENXIO;
	/*
	 * Takes the device's lock, which a function's removal may hold around the notification: not
	 * under ours.
	 */
	error = reach_all_memory(import->pdev);
	if (error)
		return error;

	error = mutex_lock_killable(&all_imports_lock);
	if (error)
		return error;
	again = pci_get_domain_bus_and_slot(request->domain, request->bus, devfn);
	pci_dev_put(again);
	if (again != import->pdev || xa_load(&leaving, (unsigned long)import->pdev)) {
		error = -ENXIO;
		goto unlock;
	}
	attachment = dma_buf_dynamic_attach(import->dmabuf, &import->pdev->dev, &import_attach_ops,
					    import);
	if (IS_ERR(attachment)) {
		error = PTR_ERR(attachment);
		goto unlock;
	}
	import->attachment = attachment;
	list_add(&import->node, &all_imports);
	error = import_map(import);
unlock:
	mutex_unlock(&all_imports_lock);
	return error;
}

/* The fields of the request have been checked. */
struct import *import_create(struct import_file *owner, const struct upcie_dmabuf_import *request)
{
	struct import *import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
	long waited;
	int error;

	if (!import)
		return ERR_PTR(-ENOMEM);
	import->owner = owner;
	INIT_LIST_HEAD(&import->node);
	import->dmabuf = dma_buf_get(request->fd);
	if (IS_ERR(import->dmabuf)) {
		error = PTR_ERR(import->dmabuf);
		kfree(import);
		return ERR_PTR(error);
	}
	error = import_attach(import, request);
	if (error)
		goto destroy;
	/*
	 * The exporter may still be moving the memory to where it said (dma-buf.h, "dynamic
	 * importer rules").
	 */
	waited = dma_resv_wait_timeout(import->dmabuf->resv, DMA_RESV_USAGE_KERNEL, true,
				       MAX_SCHEDULE_TIMEOUT);
	if (waited < 0) {
		error = waited;
		goto destroy;
	}
	if (import->addressing == UPCIE_DMABUF_ADDRESSING_PHYSICAL)
		judge_kinds(import->segments, import->segment_count);
	return import;

destroy:
	import_destroy(import);
	return ERR_PTR(error);
}

/*
 * A function that is removed loses its IOMMU group, and with that the way to unmap: before that
 * happens, all that is attached as this function is let go of.
 */
static int import_pci_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct pci_dev *pdev = to_pci_dev((struct device *)data);
	struct import *import, *next;

	switch (event) {
	case BUS_NOTIFY_DEL_DEVICE:
		mutex_lock(&all_imports_lock);
		if (xa_err(xa_store(&leaving, (unsigned long)pdev, xa_mk_value(1), GFP_KERNEL)))
			pci_warn(pdev, "upcie_dmabuf_import: no memory to note that the function "
				       "is leaving\n");
		list_for_each_entry_safe(import, next, &all_imports, node) {
			if (import->pdev != pdev)
				continue;
			import_detach(import);
			import_mark_revoked(import);
		}
		mutex_unlock(&all_imports_lock);
		return NOTIFY_OK;
	case BUS_NOTIFY_REMOVED_DEVICE:
		mutex_lock(&all_imports_lock);
		xa_erase(&leaving, (unsigned long)pdev);
		mutex_unlock(&all_imports_lock);
		return NOTIFY_OK;
	}
	return NOTIFY_DONE;
}

static struct notifier_block import_pci_notifier = {
	.notifier_call = import_pci_event,
};

int import_watch_pci(void)
{
	return bus_register_notifier(&pci_bus_type, &import_pci_notifier);
}

void import_unwatch_pci(void)
{
	bus_unregister_notifier(&pci_bus_type, &import_pci_notifier);
	xa_destroy(&leaving);
}
