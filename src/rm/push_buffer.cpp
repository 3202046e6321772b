// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/push_buffer.hpp>

#include <algorithm>
#include <utility>

#include <rm/little_endian.hpp>

namespace upcie::rm {

namespace {

struct Name {
    std::uint32_t address;
    std::string_view name;
};

// Of the channel itself (clc46f.h, clc56f.h, clc86f.h).
constexpr Name host_names[] = {
    {0x00, "SET_OBJECT"},
    {0x08, "NOP"},
    {0x10, "SEMAPHOREA"},
    {0x14, "SEMAPHOREB"},
    {0x18, "SEMAPHOREC"},
    {0x1c, "SEMAPHORED"},
    {0x20, "NON_STALL_INTERRUPT"},
    {0x24, "FB_FLUSH"},
    {0x28, "MEM_OP_A"},
    {0x2c, "MEM_OP_B"},
    {0x30, "MEM_OP_C"},
    {0x34, "MEM_OP_D"},
    {0x50, "SET_REFERENCE"},
    {0x5c, "SEM_ADDR_LO"},
    {0x60, "SEM_ADDR_HI"},
    {0x64, "SEM_PAYLOAD_LO"},
    {0x68, "SEM_PAYLOAD_HI"},
    {0x6c, "SEM_EXECUTE"},
    {0x78, "WFI"},
    {0x80, "YIELD"},
    {0x84, "CLEAR_FAULTED"},
};
// Copy engines (clc5b5.h to clc8b5.h).
constexpr Name copy_names[] = {
    {0x240, "SET_SEMAPHORE_A"},
    {0x244, "SET_SEMAPHORE_B"},
    {0x248, "SET_SEMAPHORE_PAYLOAD"},
    {0x260, "SET_SRC_PHYS_MODE"},
    {0x264, "SET_DST_PHYS_MODE"},
    {0x300, "LAUNCH_DMA"},
    {0x400, "OFFSET_IN_UPPER"},
    {0x404, "OFFSET_IN_LOWER"},
    {0x408, "OFFSET_OUT_UPPER"},
    {0x40c, "OFFSET_OUT_LOWER"},
    {0x410, "PITCH_IN"},
    {0x414, "PITCH_OUT"},
    {0x418, "LINE_LENGTH_IN"},
    {0x41c, "LINE_COUNT"},
    {0x700, "SET_REMAP_CONST_A"},
    {0x704, "SET_REMAP_CONST_B"},
    {0x708, "SET_REMAP_COMPONENTS"},
};
// Compute: what the completion of work and the launch of kernels go through.
constexpr Name compute_names[] = {
    {0x110, "WAIT_FOR_IDLE"},
    {0x180, "LINE_LENGTH_IN"},
    {0x184, "LINE_COUNT"},
    {0x188, "OFFSET_OUT_UPPER"},
    {0x18c, "OFFSET_OUT"},
    {0x1b0, "LAUNCH_DMA"},
    {0x1b4, "LOAD_INLINE_DATA"},
    {0x2b4, "SEND_PCAS_A"},
    {0x2bc, "SEND_SIGNALING_PCAS_B"},
    {0x1b00, "SET_REPORT_SEMAPHORE_A"},
    {0x1b04, "SET_REPORT_SEMAPHORE_B"},
    {0x1b08, "SET_REPORT_SEMAPHORE_C"},
    {0x1b0c, "SET_REPORT_SEMAPHORE_D"},
};

std::string_view find_name(std::span<const Name> names, std::uint32_t address) {
    const auto found = std::ranges::find(names, address, &Name::address);
    return found != names.end() ? found->name : std::string_view{};
}

// How a header's words are addressed: bits 31:29.
constexpr std::uint32_t increasing = 1;
constexpr std::uint32_t not_increasing = 3;
constexpr std::uint32_t immediate = 4;
constexpr std::uint32_t increasing_once = 5;

/// The address at which the CPU sees what the GPU sees at `address`, by the object behind both; else the address
/// itself: CUDA maps most of its memory at the same address for both.
std::uint64_t seen_by_cpu(const ObjectTree& tree, std::uint64_t address) {
    for (const ObjectMapping& gpu : tree.mappings()) {
        const bool covers = gpu.kind != ObjectMapping::Kind::cpu && gpu.died == 0 && address >= gpu.address &&
                            address - gpu.address < gpu.length;
        if (!covers || !gpu.object) {
            continue;
        }
        const std::uint64_t offset = address - gpu.address + gpu.offset;
        for (const ObjectMapping& cpu : tree.mappings()) {
            if (cpu.kind == ObjectMapping::Kind::cpu && cpu.object == gpu.object && cpu.died == 0 &&
                offset >= cpu.offset && offset - cpu.offset < cpu.length) {
                return cpu.address + (offset - cpu.offset);
            }
        }
    }
    return address;
}

} // namespace

std::string_view method_name(ClassRole engine, std::uint32_t address) noexcept {
    constexpr std::uint32_t first_of_class = 0x100;
    if (address < first_of_class) {
        return find_name(host_names, address);
    }
    if (engine == ClassRole::copy) {
        return find_name(copy_names, address);
    }
    return engine == ClassRole::compute ? find_name(compute_names, address) : std::string_view{};
}

PushBuffer read_push_buffer(std::span<const std::byte> bytes) {
    PushBuffer found;
    std::size_t at = 0;
    while (const auto header = load_u32(bytes, at)) {
        at += 4;
        const std::uint32_t how = *header >> 29;
        const std::uint32_t count = (*header >> 16) & 0x1fff;
        const auto subchannel = static_cast<std::uint8_t>((*header >> 13) & 7);
        std::uint32_t address = (*header & 0xfff) << 2;
        if (how == immediate) {
            found.methods.push_back({subchannel, address, count});
            continue;
        }
        if (*header == 0) {
            continue; // padding
        }
        if (how != increasing && how != not_increasing && how != increasing_once) {
            return found;
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            const auto value = load_u32(bytes, at);
            if (!value) {
                return found;
            }
            at += 4;
            found.methods.push_back({subchannel, address, *value});
            address += how == increasing || (how == increasing_once && i == 0) ? 4U : 0U;
        }
    }
    found.complete = at == bytes.size();
    return found;
}

void RingReader::Image::write(std::uint64_t address, std::span<const std::byte> bytes) {
    if (bytes.empty() || address + bytes.size() < address) {
        return;
    }
    // Cut away what the new piece covers.
    const std::uint64_t end = address + bytes.size();
    auto piece = pieces.upper_bound(address);
    if (piece != pieces.begin()) {
        --piece;
    }
    while (piece != pieces.end() && piece->first < end) {
        const std::uint64_t begin = piece->first;
        std::vector<std::byte> old = std::move(piece->second);
        piece = pieces.erase(piece);
        if (begin < address) {
            const std::size_t keep = std::min<std::uint64_t>(old.size(), address - begin);
            pieces[begin].assign(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(keep));
        }
        if (begin + old.size() > end) {
            pieces[end].assign(old.begin() + static_cast<std::ptrdiff_t>(end - begin), old.end());
            break;
        }
    }
    pieces[address].assign(bytes.begin(), bytes.end());
}

std::optional<std::vector<std::byte>> RingReader::Image::read(std::uint64_t address, std::uint64_t length) const {
    std::vector<std::byte> bytes;
    auto piece = pieces.upper_bound(address);
    if (piece == pieces.begin()) {
        return std::nullopt;
    }
    --piece;
    for (; piece != pieces.end() && bytes.size() < length; ++piece) {
        const std::uint64_t wanted = address + bytes.size();
        if (wanted < piece->first || wanted - piece->first >= piece->second.size()) {
            return std::nullopt;
        }
        const std::size_t from = wanted - piece->first;
        const std::size_t take = std::min<std::uint64_t>(piece->second.size() - from, length - bytes.size());
        bytes.insert(bytes.end(), piece->second.begin() + static_cast<std::ptrdiff_t>(from),
                     piece->second.begin() + static_cast<std::ptrdiff_t>(from + take));
    }
    return bytes.size() == length ? std::optional{std::move(bytes)} : std::nullopt;
}

std::vector<Submission> RingReader::take(const Record& record, const ObjectTree& tree) {
    const auto* memory = std::get_if<MemoryRecord>(&record.body);
    std::vector<Submission> found;
    // All memory of one occasion stands together: what comes behind it closes it.
    if (occasion_ != 0 && (memory == nullptr || memory->occasion != occasion_)) {
        found = finish(tree);
    }
    if (memory == nullptr) {
        return found;
    }
    occasion_ = memory->occasion;
    pid_ = record.stamp.pid;
    image_.write(memory->address, memory->bytes.bytes);
    return found;
}

void RingReader::take_ring(const ObjectTree& tree, std::size_t channel, std::vector<Submission>& found) {
    const Object& object = tree.objects()[channel];
    const std::uint64_t ring = seen_by_cpu(tree, object.ring_address);
    constexpr std::uint32_t most_entries = 1U << 20;
    const std::uint64_t end = ring + std::uint64_t{std::min(object.ring_entries, most_entries)} * 8;
    for (const auto& [begin, piece] : image_.pieces) {
        // The entries that lie wholly within this piece; a ring begins at a multiple of their size.
        const std::uint64_t first = std::max(begin, ring);
        const std::uint64_t last = std::min(begin + piece.size(), end);
        for (std::uint64_t at = first + (ring - first) % 8; at < last && last - at >= 8; at += 8) {
            const auto entry = static_cast<std::uint32_t>((at - ring) / 8);
            const std::uint64_t value = load_u64(piece, at - begin).value_or(0);
            std::uint64_t& seen = seen_[{channel, entry}];
            if (value == seen || value == 0) {
                continue;
            }
            seen = value;
            // Address bits 39:2, length in words from bit 42 on (NVC46F_GP_ENTRY).
            Submission submission;
            submission.occasion = occasion_;
            submission.channel = channel;
            submission.entry = entry;
            submission.address = value & 0xff'ffff'fffc;
            submission.bytes = (value >> 42 & 0x1f'ffff) * 4;
            if (const auto commands = image_.read(seen_by_cpu(tree, submission.address), submission.bytes)) {
                submission.recorded = true;
                submission.buffer = read_push_buffer(*commands);
            }
            found.push_back(std::move(submission));
        }
    }
}

std::vector<Submission> RingReader::finish(const ObjectTree& tree) {
    std::vector<Submission> found;
    for (std::size_t i = 0; i < tree.objects().size() && occasion_ != 0; ++i) {
        const Object& channel = tree.objects()[i];
        if (channel.role == ClassRole::channel && channel.died == 0 && channel.pid == pid_) {
            take_ring(tree, i, found);
        }
    }
    occasion_ = 0;
    return found;
}

} // namespace upcie::rm
