// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <set>

#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// I/O queue identifiers that are free. A controller's are all here at first; parts can be split off for other owners
/// (another process) and merged back.
///
/// A value. Threads: one at a time.
class QueueIds {
  public:
    QueueIds() = default;
    /// `count` identifiers from `first` on.
    QueueIds(Qid first, std::uint32_t count);

    /// The lowest free one. Error: EBUSY when none is left.
    [[nodiscard]] Result<Qid> take();
    void give_back(Qid qid) { free_.insert(qid); }
    /// The `count` highest ones, taken out of here. Error: EBUSY when there are fewer.
    [[nodiscard]] Result<QueueIds> split(std::uint32_t count);
    void merge(QueueIds other) { free_.merge(other.free_); }

    [[nodiscard]] std::size_t size() const noexcept { return free_.size(); }
    [[nodiscard]] bool contains(Qid qid) const { return free_.contains(qid); }

  private:
    std::set<Qid> free_;
};

} // namespace upcie::nvme
