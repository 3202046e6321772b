// SPDX-License-Identifier: BSD-3-Clause
// A BAR of one device as the memory of another: what the drive reads into "fake VRAM" (ivshmem's BAR 2), which the host
// sees as a file.
//   bar_check read DEVICE PATH OWNER SEED:FIRST:COUNT   reads the blocks to the BAR's beginning, and judges them there
//   bar_check stale DEVICE PATH OWNER SEED:FIRST:COUNT  a wrong offset, and what takes the BAR away under the drive,
//                                                       which reports success
//   bar_check refusals DEVICE PATH OWNER                what cannot be mapped
// Prints a line a check; the status is 1 when one failed.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <upcie/memory/bar_memory.hpp>
#include <upcie/vfio/feature.hpp>

#include "drive.hpp"

using namespace upcie;
using namespace upcie::vm;

namespace {

constexpr unsigned bar = 2;

struct Bench {
    Drive drive;
    std::shared_ptr<vfio::VfioFunction> owner;
    ByteCount size;

    static Result<Bench> open(const std::string& device, const std::string& path, const std::string& owner) {
        auto drive = Drive::open(device, path, 1);
        if (!drive) {
            return tl::unexpected{drive.error()};
        }
        auto function = open_function(host(), owner);
        if (!function) {
            return tl::unexpected{function.error()};
        }
        auto vfio = std::dynamic_pointer_cast<vfio::VfioFunction>(std::shared_ptr<pci::Function>{std::move(*function)});
        if (!vfio) {
            return fail(ENOTSUP, "open", owner, "It is not vfio's.");
        }
        const auto region = vfio->region(bar);
        if (!region) {
            return tl::unexpected{region.error()};
        }
        return Bench{std::move(*drive), std::move(vfio), region->size};
    }
    /// One command; the drive's word on it.
    [[nodiscard]] std::string read(nvme::QueuePair& queue, const Stamped& range, std::byte* into) const {
        const auto submitted = queue.read(drive.format, Lba{range.first}, range.count, into, 1);
        if (!submitted) {
            return submitted.error("read", "the stamped range").message();
        }
        queue.ring();
        std::string fault;
        finish(queue, 1, fault);
        return fault;
    }
    /// Blocks in the BAR that are not as the host stamped them.
    [[nodiscard]] std::uint32_t bad(const std::byte* data, const Stamped& range) const {
        const std::size_t unit = std::size_t{1} << drive.format.block_shift;
        std::vector<std::byte> copy(unit * range.count);
        std::copy_n(data, copy.size(), copy.data()); // judged in memory: device memory is read once
        std::uint32_t count = 0;
        for (std::uint32_t i = 0; i < range.count; ++i) {
            const auto finding = cli::judge_block({copy.data() + i * unit, unit}, range.stamp(drive.format, i));
            count += finding.verdict == cli::BlockVerdict::good ? 0 : 1;
        }
        return count;
    }
};

std::span<std::byte> bytes_of(const memory::Registration& registration) {
    return {registration.data(), registration.size().value()};
}

int read_into(const Bench& bench, const Stamped& range) {
    auto registration = memory::register_bar(*bench.drive.registry, bench.owner, bar, ByteCount{}, bench.size);
    auto queue = bench.drive.queue(8);
    if (!expect(registration, "the BAR registers") || !expect(queue, "a queue")) {
        return 1;
    }
    const auto extents = registration->extents(ByteCount{}, bench.size);
    expect(extents && extents->size() == 1, "it is one run",
           extents ? fmt::format("{:#x}", extents->front().address.value()) : extents.error().message());
    cli::poison(bytes_of(*registration).first(std::size_t{range.count} << bench.drive.format.block_shift));
    const std::string fault = bench.read(*queue, range, registration->data());
    expect(fault.empty(), "the drive reads into it", fault);
    expect(bench.bad(registration->data(), range) == 0, "all blocks are as the host wrote them");
    // From inside a page to inside a page.
    const Stamped part{fmt::format("{}:{}:{}", range.seed, range.first + 3, 9)};
    std::byte* const odd = registration->data() + (bench.size.value() / 2) + 512;
    cli::poison({odd - 512, 16 * 512});
    expect(bench.read(*queue, part, odd).empty() && bench.bad(odd, part) == 0, "also from inside a page");
    expect(bench.bad(odd - 512, Stamped{fmt::format("{}:{}:1", range.seed, range.first + 2)}) == 1,
           "and nothing before it");
    return failures == 0 ? 0 : 1;
}

/// A wrong offset, and what takes the BAR away: the drive reports success; only the data tells. (ivshmem has no
/// function reset, which would do the same.)
int stale(const Bench& bench, const Stamped& range) {
    const auto decode = [&](bool on) {
        const auto command = bench.owner->read_config(4, 2);
        return command && bench.owner->write_config(4, 2, on ? *command | 2U : *command & ~2U).has_value();
    };
    auto queue = bench.drive.queue(8);
    if (!expect(queue, "a queue")) {
        return 1;
    }
    auto registration = memory::register_bar(*bench.drive.registry, bench.owner, bar, ByteCount{}, bench.size);
    if (!expect(registration, "the BAR registers")) {
        return 1;
    }
    const std::size_t bytes = std::size_t{range.count} << bench.drive.format.block_shift;
    cli::poison(bytes_of(*registration).first(bytes));
    expect(bench.read(*queue, range, registration->data()).empty() && bench.bad(registration->data(), range) == 0,
           "good before");
    {
        // A translation that is off by some pages: the addresses are good ones, of other bytes.
        constexpr ByteCount off{1 << 20};
        const auto slice = bench.owner->export_bar(bar, off, ByteCount{bytes});
        auto mapping =
            slice ? bench.drive.controller->address_space()->map_file(slice->get(), ByteCount{}, ByteCount{bytes})
                  : tl::unexpected{slice.error()};
        if (!expect(mapping, "a slice of it maps")) {
            return 1;
        }
        const auto wrong =
            bench.drive.registry->register_mapping(registration->data(), ByteCount{bytes}, std::move(*mapping));
        cli::poison(bytes_of(*registration).first(bytes));
        expect(wrong && bench.read(*queue, range, registration->data()).empty(),
               "with a wrong offset the drive says success too");
        expect(bench.bad(registration->data(), range) == range.count,
               "not a block is where it should be: the stamps tell");
        expect(bench.bad(registration->data() + off.value(), range) == 0, "all lie where the wrong offset put them");
    }
    expect(bench.read(*queue, range, registration->data()).empty() && bench.bad(registration->data(), range) == 0,
           "without it all is good again");
    expect(decode(false) && decode(true), "memory decode goes off and on");
    cli::poison(bytes_of(*registration).first(bytes));
    const std::string fault = bench.read(*queue, range, registration->data());
    fmt::print("     the drive says: {}\n", fault.empty() ? "success" : fault);
    expect(bench.bad(registration->data(), range) == range.count, "not a block arrives any more, and the stamps tell");
    registration->unregister();
    std::array<nvme::Completion, 1> none;
    static_cast<void>(queue->poll(none)); // says that it is done with what went
    expect(bench.drive.registry->reclaim() == 0, "the dead mapping goes");
    auto again = memory::register_bar(*bench.drive.registry, bench.owner, bar, ByteCount{}, bench.size);
    if (expect(again, "the BAR registers anew")) {
        expect(bench.read(*queue, range, again->data()).empty() && bench.bad(again->data(), range) == 0,
               "and is good again");
    }
    return failures == 0 ? 0 : 1;
}

int refusals(const Bench& bench) {
    auto& registry = *bench.drive.registry;
    const auto beyond = memory::register_bar(registry, bench.owner, bar, ByteCount{}, bench.size + ByteCount{4096});
    expect(!beyond && beyond.error().is(EINVAL), "more than the BAR is refused",
           beyond ? "" : beyond.error().message());
    const auto odd = memory::register_bar(registry, bench.owner, bar, ByteCount{512}, ByteCount{4096});
    expect(!odd && odd.error().is(EINVAL), "an offset inside a page is refused", odd ? "" : odd.error().message());
    const auto none = memory::register_bar(registry, bench.owner, 5, ByteCount{}, ByteCount{4096});
    expect(!none, "a BAR that is not there is refused", none ? "" : none.error().message());

    const std::array ranges{vfio::DmaRange{ByteCount{0}, ByteCount{4096}},
                            vfio::DmaRange{ByteCount{8192}, ByteCount{4096}}};
    const auto two = vfio::export_dmabuf(host(), bench.owner->device_fd(), bar, ranges, "two ranges");
    if (expect(two, "two ranges are exported as one dma-buf")) {
        const auto mapped = bench.drive.controller->address_space()->map_file(two->get(), ByteCount{}, ByteCount{8192});
        expect(!mapped && mapped.error().is(EOPNOTSUPP), "and cannot be mapped",
               mapped ? "" : mapped.error().message());
    }
    const auto whole = bench.owner->export_bar(bar, ByteCount{}, ByteCount{8192});
    if (expect(whole, "a slice is exported")) {
        auto& space = *bench.drive.controller->address_space();
        const auto past = space.map_file(whole->get(), ByteCount{4096}, ByteCount{8192});
        expect(!past && past.error().is(EINVAL), "past its end is refused", past ? "" : past.error().message());
        const auto command = bench.owner->read_config(4, 2);
        expect(command && bench.owner->write_config(4, 2, *command & ~2U).has_value(), "memory decode goes off");
        const auto off = space.map_file(whole->get(), ByteCount{}, ByteCount{8192});
        expect(!off && off.error().is(ENODEV), "a BAR whose decode is off cannot be mapped",
               off ? "" : off.error().message());
        expect(bench.owner->write_config(4, 2, *command | 2U).has_value(), "and on again");
    }
    return failures == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const bool ranged = words.size() == 5 && (words[0] == "read" || words[0] == "stale");
    if (!ranged && !(words.size() == 4 && words[0] == "refusals")) {
        fmt::print(stderr,
                   "usage: bar_check read|stale DEVICE PATH OWNER SEED:FIRST:COUNT, or refusals DEVICE PATH OWNER\n");
        return 2;
    }
    const auto bench = Bench::open(words[1], words[2], words[3]);
    if (!expect(bench, "opens")) {
        return 1;
    }
    if (words[0] == "refusals") {
        return refusals(*bench);
    }
    const Stamped range{words[4]};
    return words[0] == "read" ? read_into(*bench, range) : stale(*bench, range);
}
