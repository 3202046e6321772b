// SPDX-License-Identifier: BSD-3-Clause
#include <iommu/type1_info.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <uapi/vfio.hpp>
#include <uapi/vfio_info_chain.hpp>

namespace upcie::iommu {

namespace {

tl::unexpected<Error> bad_answer(const char* why) {
    return fail(EPROTO, "VFIO_IOMMU_GET_INFO", "vfio container", why);
}

} // namespace

Result<Type1Info> parse_type1_info(std::span<const std::byte> answer) {
    uapi::VfioIommuType1Info fixed{};
    // cap_offset and pad came later than the rest (Linux 5.4): without them there is no chain.
    constexpr std::size_t without_chain = offsetof(uapi::VfioIommuType1Info, cap_offset);
    if (answer.size() < without_chain) {
        return bad_answer("The answer is shorter than the structure.");
    }
    std::memcpy(&fixed, answer.data(), std::min(answer.size(), sizeof fixed));
    Type1Info info;
    if ((fixed.flags & uapi::vfio_iommu_info_pgsizes) == 0 || fixed.iova_pgsizes == 0) {
        return bad_answer("The kernel tells no page size.");
    }
    info.page_sizes = fixed.iova_pgsizes;
    bool whole = true;
    bool told = false;
    bool ordered = true;
    if ((fixed.flags & uapi::vfio_iommu_info_caps) != 0 && answer.size() >= sizeof fixed) {
        const auto visit = [&](const uapi::VfioInfoCapHeader& header, std::size_t offset) {
            if (header.id == uapi::vfio_type1_cap_iova_range) {
                uapi::VfioType1CapIovaRange capability{};
                std::vector<uapi::VfioIovaRange> ranges;
                if (!uapi::read_at(answer, offset, capability) ||
                    !uapi::read_array(answer, offset + sizeof capability, capability.nr_iovas, ranges)) {
                    whole = false;
                    return;
                }
                told = true;
                for (const auto& range : ranges) {
                    ordered = ordered && range.start <= range.end &&
                              (info.ranges.empty() || info.ranges.back().last.value() < range.start);
                    info.ranges.push_back({Iova{range.start}, Iova{range.end}});
                }
            } else if (header.id == uapi::vfio_type1_cap_dma_avail) {
                uapi::VfioType1CapDmaAvail capability{};
                if (!uapi::read_at(answer, offset, capability)) {
                    whole = false;
                    return;
                }
                info.available_mappings = capability.avail;
            }
        };
        if (!uapi::walk_info_chain(answer, sizeof fixed, fixed.cap_offset, visit) || !whole) {
            return bad_answer("Its capability chain loops or leaves the answer.");
        }
    }
    if (!ordered) {
        return bad_answer("Its IOVA ranges are not ascending.");
    }
    if (!told) {
        return fail(
            EOPNOTSUPP, "VFIO_IOMMU_GET_INFO", "vfio container",
            "The kernel does not tell which IOVAs can be used (it does since Linux 5.4): an address chosen blindly "
            "could hit a reserved window.");
    }
    return info;
}

} // namespace upcie::iommu
