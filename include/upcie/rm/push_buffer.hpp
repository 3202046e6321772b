// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/rm/objects.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// One word for the GPU: the method of a class that it goes to, and what is written there.
struct Method {
    std::uint8_t subchannel = 0;
    std::uint32_t address = 0; ///< in bytes, as class headers have it: 0x300
    std::uint32_t value = 0;
    friend bool operator==(const Method&, const Method&) = default;
};

/// What a piece of push buffer says (the DMA format of Fermi and later, clc46f.h and its like). Reading stops at the
/// first word that is no header or at the end; `complete` says whether that was the end. Threads: any.
struct PushBuffer {
    std::vector<Method> methods;
    bool complete = false;
};
[[nodiscard]] PushBuffer read_push_buffer(std::span<const std::byte> bytes);

/// "SEM_EXECUTE", "LAUNCH_DMA": the name of a method of the channel itself (below 0x100) or of what is bound to the
/// subchannel; empty where it is not known. Threads: any.
[[nodiscard]] std::string_view method_name(ClassRole engine, std::uint32_t address) noexcept;

/// A piece of push buffer that a ring named when it was looked at.
struct Submission {
    std::uint64_t occasion = 0;         ///< sequence number of the call that gave the occasion to look
    std::optional<std::size_t> channel; ///< among the objects
    std::uint32_t entry = 0;            ///< of the ring
    std::uint64_t address = 0;          ///< for the GPU
    std::uint64_t bytes = 0;
    bool recorded = false; ///< the bytes themselves are in the trace
    PushBuffer buffer;
};

/// Finds rings and push buffers in the memory that a trace recorded (--memory). Feed it the records in order.
/// Threads: one at a time.
class RingReader {
  public:
    /// Takes the record; answers what new entries the rings have since the last occasion. The tree is that of before.
    [[nodiscard]] std::vector<Submission> take(const Record& record, const ObjectTree& tree);
    /// What the last occasion had; to be called once, behind the last record.
    [[nodiscard]] std::vector<Submission> finish(const ObjectTree& tree);

  private:
    struct Image {
        std::map<std::uint64_t, std::vector<std::byte>> pieces;
        void write(std::uint64_t address, std::span<const std::byte> bytes);
        [[nodiscard]] std::optional<std::vector<std::byte>> read(std::uint64_t address, std::uint64_t length) const;
    };
    void take_ring(const ObjectTree& tree, std::size_t channel, std::vector<Submission>& found);

    Image image_;
    std::uint64_t occasion_ = 0;
    std::int32_t pid_ = 0;
    std::map<std::pair<std::size_t, std::uint32_t>, std::uint64_t> seen_; ///< by channel and entry: the entry's value
};

} // namespace upcie::rm
