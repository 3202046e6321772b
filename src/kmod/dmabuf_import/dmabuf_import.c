// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/upcie_dmabuf_import tells userspace where the bytes of a dma-buf are, as one PCI function
 * sees them. See README.md for what it is good for and dmabuf_import.h for the requests.
 */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "internal.h"

static int device_open(struct inode *inode, struct file *file)
{
	struct import_file *self = kzalloc(sizeof(*self), GFP_KERNEL_ACCOUNT);

	if (!self)
		return -ENOMEM;
	mutex_init(&self->lock);
	xa_init_flags(&self->imports, XA_FLAGS_ALLOC1);
	init_waitqueue_head(&self->wait);
	file->private_data = self;
	return nonseekable_open(inode, file);
}

static int device_release(struct inode *inode, struct file *file)
{
	struct import_file *self = file->private_data;
	struct import *import;
	unsigned long handle;

	xa_for_each(&self->imports, handle, import)
		import_destroy(import);
	xa_destroy(&self->imports);
	mutex_destroy(&self->lock);
	kfree(self);
	return 0;
}

static __poll_t device_poll(struct file *file, poll_table *table)
{
	struct import_file *self = file->private_data;

	poll_wait(file, &self->wait, table);
	return atomic_read(&self->revoked) ? EPOLLIN | EPOLLPRI : 0;
}

static int version(void __user *argument)
{
	struct upcie_dmabuf_version answer = {
		.api_version = UPCIE_DMABUF_API_VERSION,
		.most_handles = UPCIE_DMABUF_MOST_HANDLES,
	};

	return copy_to_user(argument, &answer, sizeof(answer)) ? -EFAULT : 0;
}

static bool import_request_is_sound(const struct upcie_dmabuf_import *request)
{
	return !request->flags && !request->reserved && request->domain <= INT_MAX &&
	       request->bus <= 255 && request->device <= 31 && request->function <= 7;
}

/* Under self->lock. Either the caller learns the handle, or there is none. */
static int hand_out(struct import_file *self, struct import *import,
		    struct upcie_dmabuf_import *answer, void __user *argument)
{
	u32 handle;
	int error;

	if (self->count >= UPCIE_DMABUF_MOST_HANDLES)
		return -EMFILE;
	/* Cyclic: a handle that was released means nothing for as long as possible. */
	error = xa_alloc_cyclic(&self->imports, &handle, import, XA_LIMIT(1, INT_MAX),
				&self->next_handle, GFP_KERNEL_ACCOUNT);
	if (error < 0)
		return error == -EBUSY ? -EMFILE : error;
	answer->handle = handle;
	if (copy_to_user(argument, answer, sizeof(*answer))) {
		xa_erase(&self->imports, handle);
		return -EFAULT;
	}
	self->count++;
	return 0;
}

static int import(struct import_file *self, void __user *argument)
{
	struct upcie_dmabuf_import request;
	struct import *made;
	int error;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (!import_request_is_sound(&request))
		return -EINVAL;
	made = import_create(self, &request);
	if (IS_ERR(made))
		return PTR_ERR(made);

	request.pin = made->pin;
	request.peer_to_peer = made->peer_to_peer;
	request.addressing = made->addressing;
	request.revoked = READ_ONCE(made->revoked);
	request.size = made->dmabuf->size;
	request.segment_count = made->segment_count;
	memset(request.exporter, 0, sizeof(request.exporter));
	strscpy(request.exporter, made->dmabuf->exp_name, sizeof(request.exporter));

	mutex_lock(&self->lock);
	error = hand_out(self, made, &request, argument);
	mutex_unlock(&self->lock);
	if (error)
		import_destroy(made);
	return error;
}

/* Under self->lock. */
static int copy_segments(struct import_file *self, struct upcie_dmabuf_segments *request)
{
	struct import *import = xa_load(&self->imports, request->handle);
	u64 count;

	if (!import)
		return -ENOENT;
	if (request->flags || request->first > import->segment_count)
		return -EINVAL;
	if (READ_ONCE(import->revoked))
		return -ESTALE;
	count = min_t(u64, request->capacity, import->segment_count - request->first);
	if (count &&
	    copy_to_user(u64_to_user_ptr(request->entries), import->segments + request->first,
			 count * sizeof(*import->segments)))
		return -EFAULT;
	request->written = count;
	request->total = import->segment_count;
	/* Copying may have taken long. */
	return READ_ONCE(import->revoked) ? -ESTALE : 0;
}

static int segments(struct import_file *self, void __user *argument)
{
	struct upcie_dmabuf_segments request;
	int error;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	error = mutex_lock_killable(&self->lock);
	if (error)
		return error;
	error = copy_segments(self, &request);
	mutex_unlock(&self->lock);
	if (error)
		return error;
	return copy_to_user(argument, &request, sizeof(request)) ? -EFAULT : 0;
}

static int release(struct import_file *self, void __user *argument)
{
	struct upcie_dmabuf_release request;
	struct import *import;
	int error;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (request.reserved)
		return -EINVAL;
	error = mutex_lock_killable(&self->lock);
	if (error)
		return error;
	import = xa_erase(&self->imports, request.handle);
	if (import)
		self->count--;
	mutex_unlock(&self->lock);
	if (!import)
		return -ENOENT;
	import_destroy(import);
	return 0;
}

static long device_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct import_file *self = file->private_data;
	void __user *pointer = (void __user *)argument;

	switch (command) {
	case UPCIE_DMABUF_IOCTL_VERSION:
		return version(pointer);
	case UPCIE_DMABUF_IOCTL_IMPORT:
		return import(self, pointer);
	case UPCIE_DMABUF_IOCTL_SEGMENTS:
		return segments(self, pointer);
	case UPCIE_DMABUF_IOCTL_RELEASE:
		return release(self, pointer);
	}
	return -ENOTTY;
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.poll = device_poll,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/* Addresses are told to whoever can open it: root, until root decides otherwise. */
static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "upcie_dmabuf_import",
	.fops = &device_operations,
	.mode = 0600,
};

static int __init module_begin(void)
{
	int error = import_watch_pci();

	if (error)
		return error;
	error = misc_register(&device);
	if (error)
		import_unwatch_pci();
	return error;
}

static void __exit module_end(void)
{
	misc_deregister(&device);
	import_unwatch_pci();
}

module_init(module_begin);
module_exit(module_end);

MODULE_DESCRIPTION(
	"Tells userspace where the bytes of a dma-buf are, as one PCI function sees them");
MODULE_AUTHOR("The libupcie authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
