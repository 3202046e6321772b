// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an address in a scatter list means: whether the function may use it as it is, and what lies
 * behind it.
 */
#include <linux/device.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/ioport.h>
#include <linux/iommu.h>
#include <linux/range.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "internal.h"

/*
 * A PCI function begins with a DMA mask of 32 bits. Drivers for userspace leave it so, and then the
 * DMA API answers with bounce buffers for memory above 4 GiB. Such a function's real driver is in
 * userspace, where NVMe addresses 64 bits. The mask of a kernel driver is left alone.
 */
int reach_all_memory(struct pci_dev *pdev)
{
	struct device *dev = &pdev->dev;
	int error;

	/*
	 * vfio holds it while it waits for userspace to let go of the function: that may be the
	 * caller.
	 */
	error = device_lock_interruptible(dev);
	if (error)
		return error;
	if (!dev->driver || to_pci_driver(dev->driver)->driver_managed_dma ||
	    !strcmp(dev->driver->name, "uio_pci_generic")) {
		if (dma_get_mask(dev) != DMA_BIT_MASK(64))
			/* Where it cannot be had, addressing_of() tells. */
			dma_set_mask(dev, DMA_BIT_MASK(64));
	}
	device_unlock(dev);
	return 0;
}

u32 addressing_of(struct device *dev)
{
	struct iommu_group *group = iommu_group_get(dev);
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	bool translated = false;

	/*
	 * Where vfio or iommufd has claimed the group, the live domain is theirs: whatever it is,
	 * the DMA API does not map into it, and it may be freed at any time. Otherwise it is the
	 * default domain.
	 */
	if (domain)
		translated = !group || iommu_group_dma_owner_claimed(group) ||
			     domain->type != IOMMU_DOMAIN_IDENTITY;
	iommu_group_put(group);

	if (translated || get_dma_ops(dev))
		return UPCIE_DMABUF_ADDRESSING_DEFAULT_DOMAIN;
	/* The one exported way to ask whether the direct mapping may bounce. */
	if (dma_max_mapping_size(dev) != SIZE_MAX)
		return UPCIE_DMABUF_ADDRESSING_BOUNCED;
	return UPCIE_DMABUF_ADDRESSING_PHYSICAL;
}

static bool holds(const struct range *range, u64 start, u64 last)
{
	return range->start <= start && last <= range->end;
}

/*
 * Is [start, last] inside a BAR, by what the CPU calls it or by what the bus does? Says which range
 * that is.
 */
static bool find_bar(u64 start, u64 last, struct range *found)
{
	struct pci_dev *pdev = NULL;
	struct pci_bus_region region;
	int bar;

	for_each_pci_dev(pdev) {
		for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
			struct resource *res = &pdev->resource[bar];

			if (!(res->flags & IORESOURCE_MEM) || (res->flags & IORESOURCE_UNSET) ||
			    !res->parent)
				continue;
			*found = (struct range){ res->start, res->end };
			if (!holds(found, start, last)) {
				pcibios_resource_to_bus(pdev->bus, &region, res);
				*found = (struct range){ region.start, region.end };
			}
			if (holds(found, start, last)) {
				pci_dev_put(pdev);
				return true;
			}
		}
	}
	return false;
}

/* The addresses must be physical ones. */
void judge_kinds(struct upcie_dmabuf_segment *segments, u64 count)
{
	struct range bar = { 1, 0 }; /* the last one found: mostly all segments are in one */
	u64 i;

	for (i = 0; i < count; i++) {
		u64 start = segments[i].address;
		u64 last = start + segments[i].length - 1;

		if (last < start)
			continue;
		if (holds(&bar, start, last)) {
			segments[i].kind = UPCIE_DMABUF_KIND_BAR;
		} else if (region_intersects(start, segments[i].length, IORESOURCE_SYSTEM_RAM,
					     IORES_DESC_NONE) == REGION_INTERSECTS) {
			segments[i].kind = UPCIE_DMABUF_KIND_RAM;
		} else {
			struct range found;

			if (find_bar(start, last, &found)) {
				bar = found;
				segments[i].kind = UPCIE_DMABUF_KIND_BAR;
			}
		}
		cond_resched();
	}
}
