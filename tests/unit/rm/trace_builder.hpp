// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <upcie/rm/escapes.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm::test {

/// Bytes with numbers at offsets: a structure without its header.
class Words {
  public:
    explicit Words(std::size_t size) : bytes_(size) {}
    Words& u32(std::size_t at, std::uint32_t value) { return put(at, value); }
    Words& u64(std::size_t at, std::uint64_t value) { return put(at, value); }
    Words& text(std::size_t at, std::string_view value) {
        std::memcpy(bytes_.data() + at, value.data(), value.size());
        return *this;
    }
    [[nodiscard]] std::vector<std::byte> bytes() const { return bytes_; }

  private:
    template <class Number>
    Words& put(std::size_t at, Number value) {
        std::memcpy(bytes_.data() + at, &value, sizeof value);
        return *this;
    }
    std::vector<std::byte> bytes_;
};

constexpr std::uint64_t escape_request(std::uint32_t number, std::size_t size) {
    return std::uint64_t{3} << 30 | size << 16 | std::uint64_t{'F'} << 8 | number;
}

/// Writes traces by hand, call by call.
class TraceBuilder {
  public:
    static constexpr std::uint32_t client = 0xc1d00001;
    /// What differs from run to run, so that two runs of the same program can be made.
    struct Run {
        std::uint64_t stack = 0x7ffc'0000'0000;
        std::uint64_t mapping = 0x7f12'0000'0000;
        std::int32_t pid = 4711;
        std::uint32_t first_handle = 0x5c000001;
        std::string driver = "580.159.04";
    };
    TraceBuilder() : TraceBuilder(Run{}) {}
    explicit TraceBuilder(Run run) : run_{std::move(run)} {
        TraceHeader header;
        header.run = 7;
        header.tool = "upcie_rm_trace 0.1.0";
        header.driver = run_.driver;
        header.command = {"/home/alice/program"};
        trace.headers.push_back(header);
    }

    Trace trace;

    template <class Body>
    Record& record(Body body) {
        Record made;
        made.stamp.run = 7;
        made.stamp.sequence = made.stamp.entered = ++sequence_;
        made.stamp.pid = run_.pid;
        made.stamp.tid = run_.pid;
        made.stamp.time_in = 1000 * sequence_;
        made.stamp.time_out = 1000 * sequence_ + 400;
        made.body = std::move(body);
        trace.records.push_back(std::move(made));
        return trace.records.back();
    }

    struct Piece {
        std::string path;
        std::uint32_t pointer_offset = 0;
        std::vector<std::byte> before;
        std::vector<std::byte> after;
    };
    IoctlRecord& ioctl(Node node, std::string path, std::uint64_t request, std::vector<Piece> pieces) {
        IoctlRecord call;
        call.node = {node, std::move(path)};
        call.fd = 3;
        call.request = request;
        call.argument = run_.stack;
        std::uint64_t address = run_.stack;
        for (Piece& piece : pieces) {
            Block block;
            block.path = std::move(piece.path);
            block.address = address;
            block.pointer_offset = piece.pointer_offset;
            block.size = piece.before.size();
            block.before.bytes = std::move(piece.before);
            block.after.bytes = piece.after.empty() ? block.before.bytes : std::move(piece.after);
            call.blocks.push_back(std::move(block));
            address += 0x1000;
        }
        return std::get<IoctlRecord>(record(std::move(call)).body);
    }

    std::uint32_t allocate(std::uint32_t parent, std::uint32_t class_id, std::vector<std::byte> parameters = {},
                           std::uint32_t status = 0) {
        const bool root = parent == 0;
        const std::uint32_t handle = root ? client : run_.first_handle + handles_++;
        const std::uint64_t pointer = parameters.empty() ? 0 : run_.stack + 0x1000;
        Words argument{48};
        argument.u32(0, root ? 0 : client).u32(4, root ? 0 : parent).u32(8, root ? 0 : handle).u32(12, class_id);
        argument.u64(16, pointer);
        Words answer = argument;
        answer.u32(8, handle).u32(40, status);
        std::vector<Piece> pieces{{"argument", 0, argument.bytes(), answer.bytes()}};
        if (!parameters.empty()) {
            pieces.push_back({"params", 16, std::move(parameters), {}});
        }
        ioctl(Node::control, "/dev/nvidiactl", escape_request(escape_alloc, 48), std::move(pieces));
        return handle;
    }

    void control(std::uint32_t object, std::uint32_t command, std::vector<std::byte> parameters = {},
                 std::vector<std::byte> reply = {}, std::uint32_t status = 0, bool by_xfer = false) {
        Words argument{32};
        argument.u32(0, client).u32(4, object).u32(8, command).u32(24, static_cast<std::uint32_t>(parameters.size()));
        argument.u64(16, parameters.empty() ? 0 : run_.stack + 0x1000);
        Words answer = argument;
        answer.u32(28, status);
        std::vector<Piece> pieces;
        std::string path = "params";
        if (by_xfer) {
            pieces.push_back(
                {"argument", 0, Words{16}.u32(0, escape_control).u32(4, 32).u64(8, run_.stack).bytes(), {}});
            pieces.push_back({"xfer", 8, argument.bytes(), answer.bytes()});
            path = "xfer/params";
        } else {
            pieces.push_back({"argument", 0, argument.bytes(), answer.bytes()});
        }
        if (!parameters.empty()) {
            pieces.push_back({path, 16, std::move(parameters), std::move(reply)});
        }
        const std::uint32_t number = by_xfer ? escape_xfer : escape_control;
        ioctl(Node::control, "/dev/nvidiactl", escape_request(number, by_xfer ? 16 : 32), std::move(pieces));
    }

    void free(std::uint32_t parent, std::uint32_t object) {
        ioctl(Node::control, "/dev/nvidiactl", escape_request(escape_free, 16),
              {{"argument", 0, Words{16}.u32(0, client).u32(4, parent).u32(8, object).bytes(), {}}});
    }

    void uvm(std::uint32_t command, std::vector<std::byte> argument) {
        ioctl(Node::uvm, "/dev/nvidia-uvm", command, {{"argument", 0, std::move(argument), {}}});
    }

    void map(std::uint32_t memory, std::uint64_t length, std::uint64_t address) {
        ioctl(Node::control, "/dev/nvidiactl", escape_request(escape_map_memory, 56),
              {{"argument", 0, Words{56}.u32(0, client).u32(8, memory).u64(24, length).u32(48, 11).bytes(), {}}});
        MapRecord made;
        made.node = {Node::gpu, "/dev/nvidia0"};
        made.fd = 11;
        made.length = length;
        made.outcome.value = static_cast<std::int64_t>(address);
        record(made);
    }

    /// Client, device, subdevice, 2 MiB of video memory, channel group, channel, copy engine: as CUDA makes them.
    struct Objects {
        std::uint32_t device = 0, subdevice = 0, memory = 0, group = 0, channel = 0, copy = 0;
    };
    Objects objects() {
        Objects made;
        allocate(0, 0x41);
        made.device = allocate(client, 0x80, Words{56}.bytes());
        made.subdevice = allocate(made.device, 0x2080, Words{4}.bytes());
        made.memory = allocate(made.device, 0x40, Words{128}.u64(64, 2 << 20).bytes());
        made.group = allocate(made.device, 0xa06c, Words{20}.bytes());
        made.channel = allocate(made.group, 0xc86f, Words{368}.u64(8, 0x200400000).u32(16, 1024).u32(128, 9).bytes());
        made.copy = allocate(made.channel, 0xc8b5, Words{8}.u32(4, 9).bytes());
        return made;
    }

    [[nodiscard]] const Run& run() const noexcept { return run_; }

  private:
    Run run_;
    std::uint64_t sequence_ = 0;
    std::uint32_t handles_ = 0;
};

} // namespace upcie::rm::test
