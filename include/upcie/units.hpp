// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace upcie {

/// An integer with a meaning: two of different meanings neither mix nor convert, so that swapped arguments
/// (a length where an address belongs) do not compile.
template <class Tag, class Representation>
class Strong {
  public:
    using representation = Representation;

    constexpr Strong() noexcept = default;
    constexpr explicit Strong(Representation value) noexcept : value_{value} {}
    [[nodiscard]] constexpr Representation value() const noexcept { return value_; }
    friend constexpr bool operator==(Strong, Strong) noexcept = default;
    friend constexpr auto operator<=>(Strong, Strong) noexcept = default;

  private:
    Representation value_{};
};

/// A number of bytes. 64-bit everywhere: a 4 GiB scatter-list entry has been truncated before.
class ByteCount : public Strong<struct ByteCountTag, std::uint64_t> {
  public:
    using Strong::Strong;
    friend constexpr ByteCount operator+(ByteCount a, ByteCount b) noexcept { return ByteCount{a.value() + b.value()}; }
    friend constexpr ByteCount operator-(ByteCount a, ByteCount b) noexcept { return ByteCount{a.value() - b.value()}; }
    friend constexpr ByteCount operator*(ByteCount a, std::uint64_t n) noexcept { return ByteCount{a.value() * n}; }
    constexpr ByteCount& operator+=(ByteCount other) noexcept { return *this = *this + other; }
};

/// An address: an offset moves it, and the distance of two is a ByteCount. 0 is a legal value, never "none".
template <class Tag>
class Address : public Strong<Tag, std::uint64_t> {
  public:
    using Strong<Tag, std::uint64_t>::Strong;
    friend constexpr Address operator+(Address a, ByteCount n) noexcept { return Address{a.value() + n.value()}; }
    friend constexpr ByteCount operator-(Address a, Address b) noexcept { return ByteCount{a.value() - b.value()}; }
};

/// I/O virtual address: what a device emits where an IOMMU translates.
using Iova = Address<struct IovaTag>;
/// What a device emits where nothing translates: a physical address as seen from the bus.
using BusAddress = Address<struct BusAddressTag>;
/// The address that a device is to use for DMA in one AddressSpace: an Iova or a BusAddress, whichever holds there.
using DmaAddress = Address<struct DmaAddressTag>;
/// A pointer as a GPU runtime hands it out.
using DevicePointer = Address<struct DevicePointerTag>;

[[nodiscard]] constexpr DmaAddress dma_address(Iova address) noexcept {
    return DmaAddress{address.value()};
}
[[nodiscard]] constexpr DmaAddress dma_address(BusAddress address) noexcept {
    return DmaAddress{address.value()};
}

/// NVMe submission and completion queue identifier; 0 is the admin queue.
using Qid = Strong<struct QidTag, std::uint16_t>;
/// NVMe command identifier, unique among the outstanding commands of one submission queue.
using Cid = Strong<struct CidTag, std::uint16_t>;
/// NVMe namespace identifier; 0xffffffff addresses all.
using Nsid = Strong<struct NsidTag, std::uint32_t>;
/// NVMe logical block address, in blocks of the namespace's format.
using Lba = Strong<struct LbaTag, std::uint64_t>;

inline namespace literals {
constexpr ByteCount operator""_B(unsigned long long n) noexcept {
    return ByteCount{n};
}
constexpr ByteCount operator""_KiB(unsigned long long n) noexcept {
    return ByteCount{n << 10};
}
constexpr ByteCount operator""_MiB(unsigned long long n) noexcept {
    return ByteCount{n << 20};
}
constexpr ByteCount operator""_GiB(unsigned long long n) noexcept {
    return ByteCount{n << 30};
}
} // namespace literals

} // namespace upcie
