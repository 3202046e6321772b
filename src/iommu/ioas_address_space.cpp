// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/iommu/iommufd.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>

#include <fmt/format.h>
#include <unistd.h>

namespace upcie::iommu {

namespace {

/// What mappings in an IOAS are aligned to: what the kernel reports, and never less than a page, which is what memory
/// and files are made of. Asking doubles as the proof that the IOAS exists.
Result<IoasRanges> describe_ioas(Iommufd& iommufd, std::uint32_t ioas_id) {
    auto ranges = iommufd.iova_ranges(ioas_id);
    if (!ranges) {
        return ranges;
    }
    if (!std::has_single_bit(ranges->alignment.value())) {
        return fail(EPROTO, "IOMMU_IOAS_IOVA_RANGES", fmt::format("IOAS {}", ioas_id),
                    fmt::format("The kernel reports an alignment of 0x{:x}, which is no power of two.",
                                ranges->alignment.value()));
    }
    ranges->alignment = std::max(ranges->alignment, ByteCount{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))});
    return ranges;
}

Result<void> unmap_whole(Iommufd& iommufd, std::uint32_t ioas_id, Iova iova, ByteCount length) {
    const auto unmapped = iommufd.unmap(ioas_id, iova, length);
    if (!unmapped) {
        return tl::unexpected{unmapped.error()};
    }
    if (*unmapped != length) {
        return fail(EIO, "IOMMU_IOAS_UNMAP", fmt::format("IOAS {}, IOVA 0x{:x}", ioas_id, iova.value()),
                    fmt::format("0x{:x} of 0x{:x} bytes were unmapped.", unmapped->value(), length.value()));
    }
    return {};
}

tl::unexpected<Error> no_iommufd() {
    return fail(EINVAL, "make address space", "no iommufd", "Open /dev/iommu first.");
}

/// Makes the IOAS, has `finish` build the address space around it, and does not leave the IOAS behind when that fails.
template <class Finish>
auto with_new_ioas(Iommufd& iommufd, Finish&& finish) -> decltype(finish(std::uint32_t{})) {
    const auto id = iommufd.allocate_ioas();
    if (!id) {
        return tl::unexpected{id.error()};
    }
    auto made = finish(*id);
    if (!made) {
        static_cast<void>(iommufd.destroy(*id));
    }
    return made;
}

} // namespace

IoasAddressSpace::IoasAddressSpace(std::shared_ptr<Iommufd> iommufd, std::uint32_t ioas_id, IoasOwnership ownership,
                                   ByteCount granule, std::optional<IovaAllocator> window)
    : iommufd_{std::move(iommufd)},
      ioas_id_{ioas_id},
      ownership_{ownership},
      granule_{granule},
      window_{std::move(window)} {}

IoasAddressSpace::~IoasAddressSpace() {
    if (ownership_ == IoasOwnership::owned) {
        // EBUSY while a device is still attached: the last close of the iommufd takes it along then.
        static_cast<void>(iommufd_->destroy(ioas_id_));
    }
}

Result<std::shared_ptr<IoasAddressSpace>> IoasAddressSpace::create(std::shared_ptr<Iommufd> iommufd) {
    if (!iommufd) {
        return no_iommufd();
    }
    return with_new_ioas(*iommufd, [&](std::uint32_t id) { return adopt(iommufd, id, IoasOwnership::owned); });
}

Result<std::shared_ptr<IoasAddressSpace>> IoasAddressSpace::adopt(std::shared_ptr<Iommufd> iommufd,
                                                                  std::uint32_t ioas_id, IoasOwnership ownership,
                                                                  std::optional<IovaRange> window) {
    if (!iommufd) {
        return no_iommufd();
    }
    const auto known = describe_ioas(*iommufd, ioas_id);
    if (!known) {
        return tl::unexpected{known.error()};
    }
    std::optional<IovaAllocator> allocator;
    if (window) {
        std::vector<IovaRange> inside;
        for (const IovaRange& range : known->ranges) {
            const IovaRange both{std::max(range.first, window->first), std::min(range.last, window->last)};
            if (both.first <= both.last) {
                inside.push_back(both);
            }
        }
        auto made = IovaAllocator::create(inside, known->alignment);
        if (!made) {
            return tl::unexpected{std::move(made.error())};
        }
        allocator = std::move(*made);
    }
    return std::shared_ptr<IoasAddressSpace>{
        new IoasAddressSpace{std::move(iommufd), ioas_id, ownership, known->alignment, std::move(allocator)}};
}

std::string IoasAddressSpace::describe() const {
    return fmt::format("IOAS {} of /dev/iommu", ioas_id_);
}

Result<std::vector<IovaRange>> IoasAddressSpace::iova_ranges() {
    auto ranges = iommufd_->iova_ranges(ioas_id_);
    if (!ranges) {
        return tl::unexpected{std::move(ranges.error())};
    }
    return std::move(ranges->ranges);
}

template <class Map>
Result<AddressSpace::Mapped> IoasAddressSpace::place(ByteCount length, Map&& map) {
    const std::lock_guard lock{mutex_};
    std::optional<Iova> fixed;
    if (window_) {
        const auto drawn = window_->allocate(length);
        if (!drawn) {
            return tl::unexpected{drawn.error()};
        }
        fixed = *drawn;
    }
    const Result<Iova> iova = map(fixed);
    if (!iova) {
        if (fixed) {
            static_cast<void>(window_->free(*fixed, length));
        }
        return tl::unexpected{iova.error()};
    }
    return Mapped{iova->value(), {Extent{dma_address(*iova), length}}};
}

Result<AddressSpace::Mapped> IoasAddressSpace::do_map_memory(void* start, ByteCount length, Access access) {
    return place(length,
                 [&](std::optional<Iova> fixed) { return iommufd_->map(ioas_id_, start, length, access, fixed); });
}

Result<AddressSpace::Mapped> IoasAddressSpace::do_map_file(int fd, ByteCount offset, ByteCount length, Access access) {
    return place(length, [&](std::optional<Iova> fixed) {
        return iommufd_->map_file(ioas_id_, fd, offset, length, access, fixed);
    });
}

Result<void> IoasAddressSpace::do_unmap(std::uint64_t token, ByteCount length) {
    const std::lock_guard lock{mutex_};
    auto unmapped = unmap_whole(*iommufd_, ioas_id_, Iova{token}, length);
    // Where the kernel refused, the address may still lead somewhere: it is not handed out again.
    if (unmapped && window_) {
        return window_->free(Iova{token}, length);
    }
    return unmapped;
}

NoIommuIoasAddressSpace::NoIommuIoasAddressSpace(std::shared_ptr<Iommufd> iommufd, std::uint32_t ioas_id,
                                                 IoasOwnership ownership, ByteCount granule)
    : iommufd_{std::move(iommufd)}, ioas_id_{ioas_id}, ownership_{ownership}, granule_{granule} {}

NoIommuIoasAddressSpace::~NoIommuIoasAddressSpace() {
    if (ownership_ == IoasOwnership::owned) {
        static_cast<void>(iommufd_->destroy(ioas_id_)); // EBUSY: as IoasAddressSpace
    }
}

Result<std::shared_ptr<NoIommuIoasAddressSpace>> NoIommuIoasAddressSpace::create(std::shared_ptr<Iommufd> iommufd) {
    if (!iommufd) {
        return no_iommufd();
    }
    return with_new_ioas(*iommufd, [&](std::uint32_t id) { return adopt(iommufd, id, IoasOwnership::owned); });
}

Result<std::shared_ptr<NoIommuIoasAddressSpace>>
NoIommuIoasAddressSpace::adopt(std::shared_ptr<Iommufd> iommufd, std::uint32_t ioas_id, IoasOwnership ownership) {
    if (!iommufd) {
        return no_iommufd();
    }
    const auto known = describe_ioas(*iommufd, ioas_id);
    if (!known) {
        return tl::unexpected{known.error()};
    }
    return std::shared_ptr<NoIommuIoasAddressSpace>{
        new NoIommuIoasAddressSpace{std::move(iommufd), ioas_id, ownership, known->alignment}};
}

std::string NoIommuIoasAddressSpace::describe() const {
    return fmt::format("IOAS {} of /dev/iommu without an IOMMU (physical addresses)", ioas_id_);
}

Result<AddressSpace::Mapped> NoIommuIoasAddressSpace::resolve(Result<Iova> iova, ByteCount length) {
    if (!iova) {
        return tl::unexpected{std::move(iova.error())};
    }
    Mapped mapped{iova->value(), {}};
    ByteCount done;
    while (done < length) {
        const auto run = iommufd_->physical(ioas_id_, *iova + done, length - done);
        if (!run) {
            // Pinned memory without an address is of no use and would stay charged.
            static_cast<void>(iommufd_->unmap(ioas_id_, *iova, length));
            return tl::unexpected{run.error()};
        }
        mapped.extents.push_back(*run);
        done += run->length;
    }
    return mapped;
}

Result<AddressSpace::Mapped> NoIommuIoasAddressSpace::do_map_memory(void* start, ByteCount length, Access access) {
    return resolve(iommufd_->map(ioas_id_, start, length, access), length);
}

Result<AddressSpace::Mapped> NoIommuIoasAddressSpace::do_map_file(int fd, ByteCount offset, ByteCount length,
                                                                  Access access) {
    return resolve(iommufd_->map_file(ioas_id_, fd, offset, length, access), length);
}

Result<void> NoIommuIoasAddressSpace::do_unmap(std::uint64_t token, ByteCount length) {
    return unmap_whole(*iommufd_, ioas_id_, Iova{token}, length);
}

} // namespace upcie::iommu
