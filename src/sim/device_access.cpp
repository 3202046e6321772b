// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/address_space.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <mutex>

// The device's side of the simulated IOMMU: accesses to what is mapped.
namespace upcie::sim {

namespace {

bool allows(iommu::Access granted, iommu::Access wanted) noexcept {
    return (static_cast<unsigned>(granted) & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

} // namespace

// Looks at the whole range before the first byte is touched.
template <class Visit>
std::optional<AccessFault> AddressSpace::visit(DmaAddress address, std::uint64_t length, iommu::Access wanted,
                                               Visit&& each) const {
    const auto fault = [&](const char* reason) { return AccessFault{address, ByteCount{length}, wanted, reason}; };
    if (length == 0) {
        return std::nullopt;
    }
    const std::uint64_t first = address.value();
    if (length - 1 > std::numeric_limits<std::uint64_t>::max() - first) {
        return fault("runs over the end of the address space");
    }
    const std::shared_lock lock{mutex_};
    for (const bool touching : {false, true}) {
        for (std::uint64_t done = 0; done < length;) {
            const std::uint64_t at = first + done;
            auto found = windows_.upper_bound(at);
            if (found == windows_.begin()) {
                return fault("not mapped");
            }
            --found;
            const auto& [start, window] = *found;
            if (at - start >= window.length) {
                return fault(done == 0 ? "not mapped" : "runs out of its mapping");
            }
            if (!allows(window.access, wanted)) {
                return fault("mapped, but not for this kind of access");
            }
            const std::uint64_t bytes = std::min(length - done, window.length - (at - start));
            if (touching && !each(window.place, at - start, done, bytes)) {
                return fault("the runtime of the memory's owner does not reach it");
            }
            done += bytes;
        }
    }
    return std::nullopt;
}

bool AddressSpace::Place::read(std::uint64_t inside, std::span<std::byte> out) const {
    if (host == nullptr) {
        return reach->read(ByteCount{offset + inside}, out);
    }
    std::memcpy(out.data(), host + inside, out.size());
    return true;
}

bool AddressSpace::Place::write(std::uint64_t inside, std::span<const std::byte> data) const {
    if (host == nullptr) {
        return reach->write(ByteCount{offset + inside}, data);
    }
    std::memcpy(host + inside, data.data(), data.size());
    return true;
}

std::optional<AccessFault> AddressSpace::read(DmaAddress address, std::span<std::byte> out) const {
    return visit(address, out.size(), iommu::Access::read,
                 [&](const Place& place, std::uint64_t inside, std::uint64_t done, std::uint64_t bytes) {
                     return place.read(inside, out.subspan(done, bytes));
                 });
}

std::optional<AccessFault> AddressSpace::write(DmaAddress address, std::span<const std::byte> data) const {
    return visit(address, data.size(), iommu::Access::write,
                 [&](const Place& place, std::uint64_t inside, std::uint64_t done, std::uint64_t bytes) {
                     return place.write(inside, data.subspan(done, bytes));
                 });
}

std::optional<AccessFault> AddressSpace::write_zeroes(DmaAddress address, ByteCount length) const {
    return visit(address, length.value(), iommu::Access::write,
                 [](const Place& place, std::uint64_t inside, std::uint64_t, std::uint64_t bytes) {
                     static constexpr std::array<std::byte, page_size> zeroes{};
                     for (std::uint64_t done = 0; done < bytes; done += zeroes.size()) {
                         const auto part = std::min<std::uint64_t>(bytes - done, zeroes.size());
                         if (!place.write(inside + done, std::span{zeroes}.first(part))) {
                             return false;
                         }
                     }
                     return true;
                 });
}

std::optional<AccessFault> AddressSpace::store_release(DmaAddress address, std::uint32_t value) const {
    return visit(address, sizeof value, iommu::Access::write,
                 [&](const Place& place, std::uint64_t inside, std::uint64_t, std::uint64_t) {
                     if (place.host == nullptr) {
                         return place.write(inside, std::as_bytes(std::span{&value, 1}));
                     }
                     __atomic_store_n(reinterpret_cast<std::uint32_t*>(place.host + inside), value, __ATOMIC_RELEASE);
                     return true;
                 });
}

std::optional<AccessFault> AddressSpace::check(DmaAddress address, ByteCount length, iommu::Access wanted) const {
    return visit(address, length.value(), wanted,
                 [](const Place&, std::uint64_t, std::uint64_t, std::uint64_t) { return true; });
}

} // namespace upcie::sim
