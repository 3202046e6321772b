// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/queue_ids.hpp>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace upcie::nvme {

QueueIds::QueueIds(Qid first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
        free_.insert(free_.end(), Qid{static_cast<std::uint16_t>(first.value() + i)});
    }
}

Result<Qid> QueueIds::take() {
    if (free_.empty()) {
        return fail(EBUSY, "take queue identifier", {},
                    "Every I/O queue that the controller granted is in use: destroy one first");
    }
    const Qid lowest = *free_.begin();
    free_.erase(free_.begin());
    return lowest;
}

Result<QueueIds> QueueIds::split(std::uint32_t count) {
    if (count > free_.size()) {
        return fail(EBUSY, "split queue identifiers", fmt::format("{} of {}", count, free_.size()),
                    "Fewer are free: destroy queues first, or ask for fewer");
    }
    QueueIds part;
    for (std::uint32_t i = 0; i < count; ++i) {
        part.free_.insert(free_.extract(std::prev(free_.end())));
    }
    return part;
}

} // namespace upcie::nvme
