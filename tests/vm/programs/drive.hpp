// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What drive_check is made of: a controller on one path, and ranges of blocks that carry stamps.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <upcie/memory/buffer.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/controller.hpp>
#include <upcie/open.hpp>

#include "stamps.hpp"

namespace upcie::vm {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

inline int failures = 0;

inline bool expect(bool good, std::string_view what, const std::string& detail = {}) {
    fmt::print("{} {}{}{}\n", good ? "ok  " : "FAIL", what, detail.empty() ? "" : ": ", detail);
    failures += good ? 0 : 1;
    return good;
}

template <class T>
bool expect(const Result<T>& result, std::string_view what) {
    return expect(result.has_value(), what, result ? std::string{} : result.error().message());
}

inline os::System& host() {
    return os::real_system();
}

inline std::vector<std::uint64_t> numbers(std::string_view text) {
    std::vector<std::uint64_t> all;
    while (!text.empty()) {
        const std::string_view part = text.substr(0, text.find(':'));
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        if (error != std::errc{} || end != part.data() + part.size()) {
            fmt::print(stderr, "'{}' is no number\n", part);
            std::exit(2);
        }
        all.push_back(value);
        text.remove_prefix(std::min(text.size(), part.size() + 1));
    }
    return all;
}

/// Blocks that carry the stamps of one run.
struct Stamped {
    std::uint64_t seed = 0;
    std::uint64_t first = 0;
    std::uint32_t count = 0;

    explicit Stamped(std::string_view text) {
        const auto parts = numbers(text);
        if (parts.size() != 3 || parts[2] == 0) {
            fmt::print(stderr, "'{}' is not SEED:FIRST:COUNT\n", text);
            std::exit(2);
        }
        seed = parts[0];
        first = parts[1];
        count = static_cast<std::uint32_t>(parts[2]);
    }
    [[nodiscard]] cli::Stamp stamp(const nvme::BlockFormat& format, std::uint32_t index) const {
        return {seed, format.nsid.value(), 1U << format.block_shift, first + index, 1};
    }
};

/// A controller that is up, with memory for a range of blocks.
struct Drive {
    std::shared_ptr<nvme::Controller> controller;
    std::shared_ptr<memory::Registry> registry;
    nvme::BlockFormat format;

    static Result<Drive> open(const std::string& device, const std::string& path, std::uint32_t nsid) {
        OpenOptions options;
        for (const Path p : {Path::cdev, Path::group, Path::noiommu_cdev, Path::uio}) {
            options.path = to_string(p) == path ? p : options.path;
        }
        if (options.path == Path::automatic) {
            return fail(EINVAL, "open", device, "The path is cdev, group, noiommu or uio.");
        }
        auto function = open_function(host(), device, options);
        if (!function) {
            return tl::unexpected{function.error()};
        }
        nvme::ControllerOptions controller_options;
        controller_options.interrupt_vectors = (*function)->interrupt_count().value_or(0);
        auto controller = nvme::Controller::open(host(), std::move(*function), controller_options);
        if (!controller) {
            return tl::unexpected{controller.error()};
        }
        auto registry = memory::Registry::create(host(), (*controller)->address_space());
        if (!registry) {
            return tl::unexpected{registry.error()};
        }
        const auto info = (*controller)->identify_namespace(Nsid{nsid});
        if (!info) {
            return tl::unexpected{info.error()};
        }
        return Drive{std::move(*controller), std::move(*registry), {Nsid{nsid}, info->format().data_shift}};
    }
    [[nodiscard]] Result<memory::Buffer> memory(std::uint32_t blocks) const {
        const bool huge = controller->address_space()->needs_hugepages();
        return memory::Buffer::allocate(host(), ByteCount{std::uint64_t{blocks} << format.block_shift},
                                        huge ? memory::Backing::hugepage_2m : memory::Backing::plain);
    }
    [[nodiscard]] Result<nvme::QueuePair> queue(std::uint32_t depth) const {
        nvme::QueueOptions options;
        options.depth = depth;
        options.registry = registry;
        return controller->create_queue_pair(options);
    }
    [[nodiscard]] std::span<std::byte> block(const memory::Buffer& buffer, std::uint32_t index) const {
        return buffer.bytes().subspan(std::size_t{index} << format.block_shift, std::size_t{1} << format.block_shift);
    }
};

/// Takes completions until `wanted` came; those that failed are described in `fault`.
inline std::size_t finish(nvme::QueuePair& queue, std::size_t wanted, std::string& fault) {
    std::vector<nvme::Completion> ended(wanted);
    std::size_t came = 0;
    const auto until = Clock::now() + 20s;
    while (came < wanted && Clock::now() < until) {
        came += queue.poll(std::span{ended}.subspan(came));
    }
    for (std::size_t i = 0; i < came; ++i) {
        if (!ended[i].ok()) {
            fault =
                fmt::format("outcome {}, status {:#x}", static_cast<int>(ended[i].outcome()), ended[i].status().raw());
        }
    }
    if (came < wanted) {
        fault = fmt::format("{} of {} completions came", came, wanted);
    }
    return came;
}

/// What is wrong with the blocks in memory; empty: nothing. `bad` counts.
inline std::string judge(const Drive& drive, const memory::Buffer& buffer, const Stamped& range, std::uint32_t& bad) {
    std::string first;
    bad = 0;
    for (std::uint32_t i = 0; i < range.count; ++i) {
        const auto expected = range.stamp(drive.format, i);
        const auto finding = cli::judge_block(drive.block(buffer, i), expected);
        if (finding.verdict != cli::BlockVerdict::good) {
            first = bad++ == 0 ? finding.describe(expected) : first;
        }
    }
    return first;
}

/// Reads the range in one command and judges it. Empty: as the host wrote it.
inline std::string read_verified(const Drive& drive, nvme::QueuePair& queue, const memory::Buffer& buffer,
                                 const Stamped& range) {
    cli::poison(buffer.bytes());
    const auto submitted = queue.read(drive.format, Lba{range.first}, range.count, buffer.data(), 1);
    if (!submitted) {
        return submitted.error("read", "the stamped range").message();
    }
    queue.ring();
    std::string fault;
    finish(queue, 1, fault);
    std::uint32_t bad = 0;
    return fault.empty() ? judge(drive, buffer, range, bad) : fault;
}

} // namespace upcie::vm
