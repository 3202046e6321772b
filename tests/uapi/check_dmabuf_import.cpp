// SPDX-License-Identifier: BSD-3-Clause
// Compiled, never run: src/uapi/dmabuf_import.hpp must agree with the module's own header, which C++ can include too.
#include <kmod/dmabuf_import/dmabuf_import.h>

#include <cstddef>

#include <uapi/dmabuf_import.hpp>

namespace ours = upcie::uapi;

#define SAME_SIZE(own, kernel) static_assert(sizeof(ours::own) == sizeof(struct ::kernel))
#define SAME_MEMBER(own, own_member, kernel, member)                                                                   \
    static_assert(offsetof(ours::own, own_member) == offsetof(struct ::kernel, member) &&                              \
                  sizeof(ours::own::own_member) == sizeof(::kernel::member))
#define SAME_VALUE(own, kernel)                                                                                        \
    static_assert(static_cast<unsigned long long>(ours::own) == static_cast<unsigned long long>(kernel))

SAME_SIZE(DmabufImportVersion, upcie_dmabuf_version);
SAME_MEMBER(DmabufImportVersion, api_version, upcie_dmabuf_version, api_version);
SAME_MEMBER(DmabufImportVersion, most_handles, upcie_dmabuf_version, most_handles);
SAME_SIZE(DmabufImport, upcie_dmabuf_import);
SAME_MEMBER(DmabufImport, fd, upcie_dmabuf_import, fd);
SAME_MEMBER(DmabufImport, flags, upcie_dmabuf_import, flags);
SAME_MEMBER(DmabufImport, domain, upcie_dmabuf_import, domain);
SAME_MEMBER(DmabufImport, bus, upcie_dmabuf_import, bus);
SAME_MEMBER(DmabufImport, device, upcie_dmabuf_import, device);
SAME_MEMBER(DmabufImport, function, upcie_dmabuf_import, function);
SAME_MEMBER(DmabufImport, handle, upcie_dmabuf_import, handle);
SAME_MEMBER(DmabufImport, pin, upcie_dmabuf_import, pin);
SAME_MEMBER(DmabufImport, peer_to_peer, upcie_dmabuf_import, peer_to_peer);
SAME_MEMBER(DmabufImport, addressing, upcie_dmabuf_import, addressing);
SAME_MEMBER(DmabufImport, revoked, upcie_dmabuf_import, revoked);
SAME_MEMBER(DmabufImport, reserved, upcie_dmabuf_import, reserved);
SAME_MEMBER(DmabufImport, size, upcie_dmabuf_import, size);
SAME_MEMBER(DmabufImport, segment_count, upcie_dmabuf_import, segment_count);
SAME_MEMBER(DmabufImport, exporter, upcie_dmabuf_import, exporter);
SAME_SIZE(DmabufImportSegment, upcie_dmabuf_segment);
SAME_MEMBER(DmabufImportSegment, address, upcie_dmabuf_segment, address);
SAME_MEMBER(DmabufImportSegment, length, upcie_dmabuf_segment, length);
SAME_MEMBER(DmabufImportSegment, kind, upcie_dmabuf_segment, kind);
SAME_MEMBER(DmabufImportSegment, reserved, upcie_dmabuf_segment, reserved);
SAME_SIZE(DmabufImportSegments, upcie_dmabuf_segments);
SAME_MEMBER(DmabufImportSegments, handle, upcie_dmabuf_segments, handle);
SAME_MEMBER(DmabufImportSegments, flags, upcie_dmabuf_segments, flags);
SAME_MEMBER(DmabufImportSegments, first, upcie_dmabuf_segments, first);
SAME_MEMBER(DmabufImportSegments, entries, upcie_dmabuf_segments, entries);
SAME_MEMBER(DmabufImportSegments, capacity, upcie_dmabuf_segments, capacity);
SAME_MEMBER(DmabufImportSegments, written, upcie_dmabuf_segments, written);
SAME_MEMBER(DmabufImportSegments, total, upcie_dmabuf_segments, total);
SAME_SIZE(DmabufImportRelease, upcie_dmabuf_release);
SAME_MEMBER(DmabufImportRelease, handle, upcie_dmabuf_release, handle);
SAME_MEMBER(DmabufImportRelease, reserved, upcie_dmabuf_release, reserved);
SAME_VALUE(dmabuf_import_api_version, UPCIE_DMABUF_API_VERSION);
SAME_VALUE(dmabuf_import_version, UPCIE_DMABUF_IOCTL_VERSION);
SAME_VALUE(dmabuf_import_import, UPCIE_DMABUF_IOCTL_IMPORT);
SAME_VALUE(dmabuf_import_segments, UPCIE_DMABUF_IOCTL_SEGMENTS);
SAME_VALUE(dmabuf_import_release, UPCIE_DMABUF_IOCTL_RELEASE);
SAME_VALUE(dmabuf_import_pin_refused, UPCIE_DMABUF_PIN_REFUSED);
SAME_VALUE(dmabuf_import_pin_pinned, UPCIE_DMABUF_PIN_PINNED);
SAME_VALUE(dmabuf_import_pin_static, UPCIE_DMABUF_PIN_STATIC);
SAME_VALUE(dmabuf_import_addressing_physical, UPCIE_DMABUF_ADDRESSING_PHYSICAL);
SAME_VALUE(dmabuf_import_addressing_default_domain, UPCIE_DMABUF_ADDRESSING_DEFAULT_DOMAIN);
SAME_VALUE(dmabuf_import_addressing_bounced, UPCIE_DMABUF_ADDRESSING_BOUNCED);
SAME_VALUE(dmabuf_import_kind_unknown, UPCIE_DMABUF_KIND_UNKNOWN);
SAME_VALUE(dmabuf_import_kind_ram, UPCIE_DMABUF_KIND_RAM);
SAME_VALUE(dmabuf_import_kind_bar, UPCIE_DMABUF_KIND_BAR);
