// SPDX-License-Identifier: GPL-2.0-only
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "dmabuf_exporter.h"

MODULE_IMPORT_NS("DMA_BUF");

/* All counts are under the reservation lock. */
struct buffer {
	u32 manners;
	u32 count;
	u32 attached;
	u32 pinned;
	u32 mapped;
	struct exporter_entry *entries;
};

static int buffer_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = dmabuf->priv;

	if (buffer->manners & EXPORTER_NO_PEER)
		attachment->peer2peer = false;
	dma_resv_lock(dmabuf->resv, NULL);
	buffer->attached++;
	dma_resv_unlock(dmabuf->resv);
	return 0;
}

static void buffer_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = dmabuf->priv;

	dma_resv_lock(dmabuf->resv, NULL);
	buffer->attached--;
	dma_resv_unlock(dmabuf->resv);
}

static int buffer_pin(struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = attachment->dmabuf->priv;

	if (buffer->manners & EXPORTER_PIN_REFUSED)
		return -EOPNOTSUPP;
	if (buffer->manners & EXPORTER_PIN_FAILS)
		return -EBUSY;
	if (buffer->manners & EXPORTER_PIN_MOVES)
		dma_buf_invalidate_mappings(attachment->dmabuf);
	buffer->pinned++;
	return 0;
}

static void buffer_unpin(struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = attachment->dmabuf->priv;

	buffer->pinned--;
}

static struct sg_table *buffer_map(struct dma_buf_attachment *attachment,
				   enum dma_data_direction direction)
{
	struct buffer *buffer = attachment->dmabuf->priv;
	struct scatterlist *sg;
	struct sg_table *sgt;
	int error, i;

	if (buffer->manners & EXPORTER_MAP_FAILS)
		return ERR_PTR(-ENOSPC);
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	error = sg_alloc_table(sgt, buffer->count, GFP_KERNEL);
	if (error) {
		kfree(sgt);
		return ERR_PTR(error);
	}
	/* No pages, as with device memory. */
	for_each_sgtable_sg(sgt, sg, i) {
		sg_dma_address(sg) = buffer->entries[i].address;
		sg_dma_len(sg) = buffer->entries[i].length;
	}
	buffer->mapped++;
	return sgt;
}

static void buffer_unmap(struct dma_buf_attachment *attachment, struct sg_table *sgt,
			 enum dma_data_direction direction)
{
	struct buffer *buffer = attachment->dmabuf->priv;

	buffer->mapped--;
	sg_free_table(sgt);
	kfree(sgt);
}

static void buffer_release(struct dma_buf *dmabuf)
{
	struct buffer *buffer = dmabuf->priv;

	kfree(buffer->entries);
	kfree(buffer);
}

static const struct dma_buf_ops buffer_ops = {
	.attach = buffer_attach,
	.detach = buffer_detach,
	.pin = buffer_pin,
	.unpin = buffer_unpin,
	.map_dma_buf = buffer_map,
	.unmap_dma_buf = buffer_unmap,
	.release = buffer_release,
};

static long create(void __user *argument)
{
	struct exporter_create request;
	struct buffer *buffer;
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	int fd;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	buffer->manners = request.manners;
	buffer->count = request.count;
	buffer->entries = memdup_array_user(u64_to_user_ptr(request.entries), request.count,
					    sizeof(*buffer->entries));
	if (IS_ERR(buffer->entries)) {
		fd = PTR_ERR(buffer->entries);
		kfree(buffer);
		return fd;
	}
	info.ops = &buffer_ops;
	info.size = request.size;
	info.flags = O_RDWR | O_CLOEXEC;
	info.priv = buffer;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		kfree(buffer->entries);
		kfree(buffer);
		return PTR_ERR(dmabuf);
	}
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

static long look(void __user *argument, bool move)
{
	struct exporter_state request;
	struct dma_buf *dmabuf;
	struct buffer *buffer;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	dmabuf = dma_buf_get(request.fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (dmabuf->ops != &buffer_ops) {
		dma_buf_put(dmabuf);
		return -EINVAL;
	}
	buffer = dmabuf->priv;
	dma_resv_lock(dmabuf->resv, NULL);
	if (move)
		dma_buf_invalidate_mappings(dmabuf);
	request.attached = buffer->attached;
	request.pinned = buffer->pinned;
	request.mapped = buffer->mapped;
	dma_resv_unlock(dmabuf->resv);
	dma_buf_put(dmabuf);
	return copy_to_user(argument, &request, sizeof(request)) ? -EFAULT : 0;
}

static long device_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	switch (command) {
	case EXPORTER_CREATE:
		return create((void __user *)argument);
	case EXPORTER_STATE:
		return look((void __user *)argument, false);
	case EXPORTER_MOVE:
		return look((void __user *)argument, true);
	}
	return -ENOTTY;
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = device_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "upcie_dmabuf_exporter",
	.fops = &device_operations,
	.mode = 0600,
};
module_misc_device(device);

MODULE_DESCRIPTION("A dma-buf exporter with chosen manners, for tests");
MODULE_LICENSE("GPL");
