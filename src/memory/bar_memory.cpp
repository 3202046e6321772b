// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/memory/bar_memory.hpp>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include <upcie/os/mapping.hpp>

namespace upcie::memory {

namespace {

/// What a mapped BAR needs: the CPU's view goes before the device.
struct Kept {
    std::shared_ptr<vfio::VfioFunction> owner;
    os::Mapping view;
};

Result<iommu::DmaMapping> map_for_devices(iommu::AddressSpace& space, vfio::VfioFunction& owner, unsigned index,
                                          ByteCount offset, const os::Mapping& view) {
    // type1 knows no files, and takes a BAR's mapping as it is.
    if (space.kind() == iommu::AddressSpaceKind::type1) {
        return space.map_memory(view.data(), view.size());
    }
    const auto exported = owner.export_bar(index, offset, view.size());
    if (!exported) {
        return tl::unexpected{exported.error()};
    }
    return space.map_file(exported->get(), ByteCount{}, view.size());
}

} // namespace

Result<Registration> register_bar(Registry& registry, std::shared_ptr<vfio::VfioFunction> owner, unsigned index,
                                  ByteCount offset, ByteCount length) {
    if (!owner) {
        return fail(EINVAL, "register BAR", fmt::format("BAR {}", index), "Open the device whose BAR it is first.");
    }
    auto view = owner->map_region(index, offset, length);
    if (!view) {
        return tl::unexpected{std::move(view.error())};
    }
    auto mapping = map_for_devices(*registry.address_space(), *owner, index, offset, *view);
    if (!mapping) {
        return tl::unexpected{std::move(mapping.error())};
    }
    std::byte* const start = view->data();
    auto kept = std::make_shared<Kept>(Kept{std::move(owner), std::move(*view)});
    return registry.register_mapping(start, length, std::move(*mapping), ByteCount{}, std::move(kept));
}

} // namespace upcie::memory
