// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <upcie/rm/driver_version.hpp>
#include <upcie/rm/node.hpp>

/// What a program asked of the nodes of NVIDIA's driver, as records: what upcie_rm_trace writes and upcie_rm reads.
/// docs/rm-trace.md has the file format (JSON Lines); these types know nothing of it, nor of how a call was caught.
/// All are values. Threads: any, one at a time for one value.
namespace upcie::rm {

/// Raised when a reader of older traces could stumble over a change; new fields and record types come without that.
inline constexpr int trace_format_version = 1;
inline constexpr std::string_view trace_format_name = "upcie-rm-trace";

/// What was read of a process' memory at one time. Never filled up with zeros: `bytes` is what was read.
struct Capture {
    std::vector<std::byte> bytes;
    int error = 0; ///< errno where reading stopped before `bytes` had all that was wanted; 0 otherwise
    friend bool operator==(const Capture&, const Capture&) = default;
};

/// A piece of memory that belongs to a call: its argument, or what a pointer in another block leads to.
struct Block {
    std::string path;                 ///< "argument", else the names of the pointers: "params", "xfer/params"
    std::uint64_t address = 0;        ///< in the calling process
    std::uint32_t pointer_offset = 0; ///< of the pointer, in the block that has it; 0 for the argument
    std::uint64_t size = 0;           ///< bytes that the call says lie there
    bool size_known = true;           ///< false: nothing says how many; `size` is what was tried
    bool cut = false;                 ///< fewer than `size` were meant to be kept
    Capture before;                   ///< as the call was entered
    Capture after;                    ///< as it returned; empty with error 0 when it never did
    friend bool operator==(const Block&, const Block&) = default;
};

/// How a system call ended.
struct Outcome {
    enum class Kind : std::uint8_t {
        returned,    ///< `value` and `error` are its result
        interrupted, ///< a signal ended it, and it was not seen to start again: EINTR for the program, as far as is
                     ///< known
        unfinished,  ///< the thread ended, or the tracer let go, before it returned
    };
    Kind kind = Kind::returned;
    std::int64_t value = 0; ///< as the program sees it: -1 on failure
    int error = 0;          ///< errno, 0 on success
    [[nodiscard]] bool succeeded() const noexcept { return kind == Kind::returned && error == 0; }
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// What every record has. Times are CLOCK_MONOTONIC in nanoseconds.
struct Stamp {
    std::uint64_t run = 0;      ///< which tracer wrote it: the header of the same `run` applies
    std::uint64_t sequence = 0; ///< 1, 2, 3 ... in the order in which calls returned; unique within a run
    /// The sequence number that the next record had when this call was entered. Equal to `sequence` when nothing else
    /// happened meanwhile; smaller by the number of records between.
    std::uint64_t entered = 0;
    std::int32_t pid = 0; ///< process (thread group), as the tracer sees it
    std::int32_t tid = 0;
    std::uint64_t time_in = 0;
    std::uint64_t time_out = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
};

/// A node of the driver, as a call named it.
struct NodeName {
    Node kind = Node::other;
    std::string path; ///< "/dev/nvidia0"
    friend bool operator==(const NodeName&, const NodeName&) = default;
};

/// An ioctl on a node.
struct IoctlRecord {
    NodeName node;
    std::int32_t fd = -1;
    std::uint64_t request = 0;
    std::uint64_t argument = 0; ///< the third argument as it was passed, pointer or not
    std::vector<Block> blocks;  ///< the argument first (absent when it is no pointer), outer before inner
    std::uint32_t restarts = 0; ///< how often a signal made the kernel start it over; still one call
    Outcome outcome;
    friend bool operator==(const IoctlRecord&, const IoctlRecord&) = default;
};

/// open, openat, openat2, creat of a node or of a file that the driver's libraries consult.
struct OpenRecord {
    std::string call;     ///< "openat"
    std::string path;     ///< as the program gave it
    std::string resolved; ///< what the new fd refers to; empty on failure
    std::uint64_t flags = 0;
    std::uint32_t mode = 0;
    bool is_node = false; ///< `node` means something
    NodeName node;
    std::uint32_t device_major = 0; ///< of a character device, else 0
    std::uint32_t device_minor = 0;
    Outcome outcome; ///< value: the fd
    friend bool operator==(const OpenRecord&, const OpenRecord&) = default;
};

/// stat, lstat, fstat, newfstatat, statx, access, faccessat, readlink, mknod and their like, on the same files.
struct StatRecord {
    std::string call; ///< "newfstatat"
    std::string path; ///< as given; empty for an fd alone
    std::int32_t fd = -1;
    std::uint64_t flags = 0;
    std::uint32_t mode = 0; ///< what the file is: st_mode; for access what was asked for; for mknod what was given
    std::uint32_t device_major = 0; ///< st_rdev, or mknod's
    std::uint32_t device_minor = 0;
    std::string target; ///< readlink: what it answered
    Outcome outcome;
    friend bool operator==(const StatRecord&, const StatRecord&) = default;
};

/// read, pread64 of a consulted file, by the thread that opened it.
struct ReadRecord {
    std::string call;
    std::int32_t fd = -1;
    std::string path;       ///< what the fd refers to
    std::uint64_t size = 0; ///< bytes asked for
    std::uint64_t offset = 0;
    Block content; ///< path "content"; only `after` is filled, with what was answered
    Outcome outcome;
    friend bool operator==(const ReadRecord&, const ReadRecord&) = default;
};

/// close of a node or a consulted file, or close_range over one (one record a descriptor).
struct CloseRecord {
    std::int32_t fd = -1;
    bool is_node = false;
    NodeName node;
    Outcome outcome;
    friend bool operator==(const CloseRecord&, const CloseRecord&) = default;
};

/// dup, dup2, dup3, F_DUPFD of a node.
struct DuplicateRecord {
    NodeName node;
    std::int32_t fd = -1;
    bool close_on_exec = false;
    Outcome outcome; ///< value: the new fd
    friend bool operator==(const DuplicateRecord&, const DuplicateRecord&) = default;
};

/// A descriptor of a node sent or received over a socket.
struct PassRecord {
    bool received = false;
    std::int32_t socket = -1;
    std::int32_t fd = -1; ///< of the sender when sent, of the receiver when received
    NodeName node;
    Outcome outcome;
    friend bool operator==(const PassRecord&, const PassRecord&) = default;
};

/// mmap of a node, or one with MAP_FIXED over such a mapping (then `node` has no path).
struct MapRecord {
    NodeName node;
    std::int32_t fd = -1;
    std::uint64_t address = 0; ///< asked for
    std::uint64_t length = 0;
    std::uint64_t offset = 0;
    std::uint32_t protection = 0;
    std::uint32_t flags = 0;
    Outcome outcome; ///< value: where it lies
    friend bool operator==(const MapRecord&, const MapRecord&) = default;
};

/// munmap or mremap of a range that touches a mapping of a node.
struct UnmapRecord {
    bool moved = false; ///< mremap
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t new_length = 0;  ///< mremap
    std::uint64_t new_address = 0; ///< mremap with MREMAP_FIXED
    std::uint32_t flags = 0;       ///< mremap
    Outcome outcome;
    friend bool operator==(const UnmapRecord&, const UnmapRecord&) = default;
};

/// poll or ppoll with a node among its descriptors, or epoll_ctl on one.
struct PollRecord {
    struct Entry {
        std::int32_t fd = -1;
        NodeName node;
        std::uint32_t events = 0;
        std::uint32_t answered = 0;
        friend bool operator==(const Entry&, const Entry&) = default;
    };
    std::string call;             ///< "poll", "ppoll", "epoll_ctl"
    std::uint64_t entries = 0;    ///< descriptors in the call, others included
    std::vector<Entry> nodes;     ///< those that are nodes, in the call's order
    std::int64_t timeout_ns = -1; ///< -1: none
    std::int32_t operation = 0;   ///< epoll_ctl: EPOLL_CTL_ADD ...
    std::int32_t epoll = -1;      ///< epoll_ctl: the epoll descriptor
    Outcome outcome;
    friend bool operator==(const PollRecord&, const PollRecord&) = default;
};

/// A descriptor of a node that a process holds without having opened it itself.
struct HeldNode {
    std::int32_t fd = -1;
    NodeName node;
    friend bool operator==(const HeldNode&, const HeldNode&) = default;
};

/// A process or thread came to be, or was attached to. Stamp: of the new one.
struct BirthRecord {
    std::string how;             ///< "start", "attach", "fork", "vfork", "thread", "clone"
    std::int32_t parent = 0;     ///< tid that made it; 0 where none is known
    std::vector<HeldNode> nodes; ///< that it has from the beginning; empty for a thread
    friend bool operator==(const BirthRecord&, const BirthRecord&) = default;
};

/// A process runs another program.
struct ExecRecord {
    std::string program; ///< /proc/PID/exe
    std::vector<std::string> arguments;
    std::int32_t former_tid = 0;
    std::vector<HeldNode> nodes; ///< still open behind it
    friend bool operator==(const ExecRecord&, const ExecRecord&) = default;
};

/// A thread ended; the last of a process ends it.
struct ExitRecord {
    bool by_signal = false;
    std::int32_t status = 0; ///< exit status, or the signal
    bool process = false;    ///< the process as a whole is gone
    friend bool operator==(const ExitRecord&, const ExitRecord&) = default;
};

/// A library of NVIDIA's was opened by the program's loader.
struct LibraryRecord {
    std::string path;
    std::string version; ///< of its file name: "580.159.04"; empty where that has none
    friend bool operator==(const LibraryRecord&, const LibraryRecord&) = default;
};

/// Memory behind a mapping that changed since it was last recorded (--memory). Stamp: of the call that gave the
/// occasion to look.
struct MemoryRecord {
    NodeName node;              ///< whose mapping; no path for other memory
    std::uint64_t mapping = 0;  ///< where the mapping begins
    std::uint64_t address = 0;  ///< of the first byte of `bytes`
    std::uint64_t occasion = 0; ///< sequence number of the call
    Capture bytes;
    friend bool operator==(const MemoryRecord&, const MemoryRecord&) = default;
};

/// Something that a reader should know: a call that could not be recorded, a limit that was met.
struct NoteRecord {
    std::string subject; ///< one word, stable: "foreign-call", "own-filter", "io-uring" ...
    std::string text;
    friend bool operator==(const NoteRecord&, const NoteRecord&) = default;
};

/// Last of a run that ended well: what it cost.
struct SummaryRecord {
    struct Count {
        std::string kind;
        std::uint64_t stops = 0;
        friend bool operator==(const Count&, const Count&) = default;
    };
    std::vector<Count> stops;    ///< by kind of system call or event
    std::uint64_t tracer_ns = 0; ///< processor time of the tracer
    std::uint64_t elapsed_ns = 0;
    std::uint64_t program_ns = 0; ///< processor time of the traced processes
    std::uint64_t lost = 0;       ///< records that could not be written
    friend bool operator==(const SummaryRecord&, const SummaryRecord&) = default;
};

/// A record of a type that this version does not know: kept, so that it can be counted and shown.
struct UnknownRecord {
    std::string type;
    std::string text; ///< the whole line
    friend bool operator==(const UnknownRecord&, const UnknownRecord&) = default;
};

struct Record {
    Stamp stamp;
    std::variant<IoctlRecord, OpenRecord, StatRecord, ReadRecord, CloseRecord, DuplicateRecord, PassRecord, MapRecord,
                 UnmapRecord, PollRecord, BirthRecord, ExecRecord, ExitRecord, LibraryRecord, MemoryRecord, NoteRecord,
                 SummaryRecord, UnknownRecord>
        body;
    friend bool operator==(const Record&, const Record&) = default;
};

/// First line of a run.
struct TraceHeader {
    int version = trace_format_version;
    std::uint64_t run = 0;
    std::string tool;              ///< "upcie_rm_trace 0.1.0"
    std::string mode;              ///< "filter": stops where a seccomp filter says; "every-call"; "attach"
    std::string kernel;            ///< uname: "Linux 6.1.0 x86_64"
    std::string machine;           ///< "x86_64": byte order and layout of all blocks
    std::string driver;            ///< version of NVIDIA's kernel driver, "580.159.04"; empty where none is loaded
    std::vector<std::string> gpus; ///< names, by PCI address
    std::vector<std::string> command;
    std::string started; ///< UTC, ISO 8601
    std::uint64_t started_monotonic = 0;
    bool memory = false; ///< --memory
    friend bool operator==(const TraceHeader&, const TraceHeader&) = default;
};

/// Something in a trace that could not be understood, or is missing.
struct TraceProblem {
    std::uint64_t line = 0; ///< 1 for the first
    std::string text;
    friend bool operator==(const TraceProblem&, const TraceProblem&) = default;
};

/// A whole trace.
struct Trace {
    std::vector<TraceHeader> headers; ///< one a run
    std::vector<Record> records;      ///< in the one order: by time of return where there are several runs
    std::vector<TraceProblem> problems;
};

/// "ioctl", "open" ...: the type of a record as the file has it. Threads: any.
[[nodiscard]] std::string_view type_name(const Record& record) noexcept;

} // namespace upcie::rm
