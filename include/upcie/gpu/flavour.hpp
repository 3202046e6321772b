// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>

#include <upcie/gpu/runtime.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::gpu {

/// What a type must have to be a flavour of Runtime: one concept a function, so that the compiler's message names the
/// function that is missing or has another signature, and not a virtual function table.
namespace has {

template <class F>
concept describe = requires(const F& flavour) {
    { flavour.describe() } -> std::same_as<std::string>;
};
template <class F>
concept allocate = requires(F& flavour, ByteCount size) {
    { flavour.allocate(size) } -> std::same_as<Result<DevicePointer>>;
};
template <class F>
concept free = requires(F& flavour, DevicePointer base) {
    { flavour.free(base) } -> std::same_as<Result<void>>;
};
template <class F>
concept allocation_of = requires(F& flavour, DevicePointer pointer) {
    { flavour.allocation_of(pointer) } -> std::same_as<Result<Allocation>>;
};
template <class F>
concept reported_granularity = requires(const F& flavour) {
    { flavour.reported_granularity() } -> std::same_as<ByteCount>;
};
template <class F>
concept export_range = requires(F& flavour, DevicePointer start, ByteCount length) {
    { flavour.export_range(start, length) } -> std::same_as<Result<Export>>;
};
template <class F>
concept register_mmio = requires(F& flavour, void* start, ByteCount length) {
    { flavour.register_mmio(start, length) } -> std::same_as<Result<DevicePointer>>;
};
template <class F>
concept unregister_mmio = requires(F& flavour, void* start) {
    { flavour.unregister_mmio(start) } -> std::same_as<Result<void>>;
};
template <class F>
concept copy_to_device = requires(F& flavour, DevicePointer to, const void* from, ByteCount length) {
    { flavour.copy_to_device(to, from, length) } -> std::same_as<Result<void>>;
};
template <class F>
concept copy_to_host = requires(F& flavour, void* to, DevicePointer from, ByteCount length) {
    { flavour.copy_to_host(to, from, length) } -> std::same_as<Result<void>>;
};
template <class F>
concept read_by_kernel = requires(F& flavour, DevicePointer pointer) {
    { flavour.read_by_kernel(pointer) } -> std::same_as<Result<std::uint64_t>>;
};
template <class F>
concept checksum = requires(F& flavour, DevicePointer start, ByteCount length) {
    { flavour.checksum(start, length) } -> std::same_as<Result<std::uint64_t>>;
};

} // namespace has

/// All of them.
template <class F>
concept Flavour = has::describe<F> && has::allocate<F> && has::free<F> && has::allocation_of<F> &&
    has::reported_granularity<F> && has::export_range<F> && has::register_mmio<F> && has::unregister_mmio<F> &&
    has::copy_to_device<F> && has::copy_to_host<F> && has::read_by_kernel<F> && has::checksum<F>;

/// A Runtime made of a flavour. Owns it; its thread rule is the flavour's.
template <class F>
class FlavourRuntime final : public Runtime {
    static_assert(has::describe<F>, "the flavour lacks describe() const -> std::string");
    static_assert(has::allocate<F>, "the flavour lacks allocate(ByteCount) -> Result<DevicePointer>");
    static_assert(has::free<F>, "the flavour lacks free(DevicePointer) -> Result<void>");
    static_assert(has::allocation_of<F>, "the flavour lacks allocation_of(DevicePointer) -> Result<Allocation>");
    static_assert(has::reported_granularity<F>, "the flavour lacks reported_granularity() const -> ByteCount");
    static_assert(has::export_range<F>, "the flavour lacks export_range(DevicePointer, ByteCount) -> Result<Export>");
    static_assert(has::register_mmio<F>, "the flavour lacks register_mmio(void*, ByteCount) -> Result<DevicePointer>");
    static_assert(has::unregister_mmio<F>, "the flavour lacks unregister_mmio(void*) -> Result<void>");
    static_assert(has::copy_to_device<F>,
                  "the flavour lacks copy_to_device(DevicePointer, const void*, ByteCount) -> Result<void>");
    static_assert(has::copy_to_host<F>,
                  "the flavour lacks copy_to_host(void*, DevicePointer, ByteCount) -> Result<void>");
    static_assert(has::read_by_kernel<F>, "the flavour lacks read_by_kernel(DevicePointer) -> Result<std::uint64_t>");
    static_assert(has::checksum<F>, "the flavour lacks checksum(DevicePointer, ByteCount) -> Result<std::uint64_t>");

  public:
    explicit FlavourRuntime(F flavour) : flavour_{std::move(flavour)} {}

    [[nodiscard]] F& flavour() noexcept { return flavour_; }

    [[nodiscard]] std::string describe() const override { return flavour_.describe(); }
    [[nodiscard]] Result<DevicePointer> allocate(ByteCount size) override { return flavour_.allocate(size); }
    Result<void> free(DevicePointer base) override { return flavour_.free(base); }
    [[nodiscard]] Result<Allocation> allocation_of(DevicePointer pointer) override {
        return flavour_.allocation_of(pointer);
    }
    [[nodiscard]] ByteCount reported_granularity() const override { return flavour_.reported_granularity(); }
    [[nodiscard]] Result<Export> export_range(DevicePointer start, ByteCount length) override {
        return flavour_.export_range(start, length);
    }
    [[nodiscard]] Result<DevicePointer> register_mmio(void* start, ByteCount length) override {
        return flavour_.register_mmio(start, length);
    }
    Result<void> unregister_mmio(void* start) override { return flavour_.unregister_mmio(start); }
    Result<void> copy_to_device(DevicePointer to, const void* from, ByteCount length) override {
        return flavour_.copy_to_device(to, from, length);
    }
    Result<void> copy_to_host(void* to, DevicePointer from, ByteCount length) override {
        return flavour_.copy_to_host(to, from, length);
    }
    [[nodiscard]] Result<std::uint64_t> read_by_kernel(DevicePointer pointer) override {
        return flavour_.read_by_kernel(pointer);
    }
    [[nodiscard]] Result<std::uint64_t> checksum(DevicePointer start, ByteCount length) override {
        return flavour_.checksum(start, length);
    }

  private:
    F flavour_;
};

} // namespace upcie::gpu
