// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/cordons.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "controller/cluster/fleet.h"
#include "fairway/v1/admin.pb.h"
#include "identity/token.h"

namespace fairway {
namespace {

// Says who the caller is, for those who will ask why an island takes no sessions.
Cordon CordonBy(const Caller& caller) {
  Cordon cordon;
  cordon.by = caller.token == 0 ? "the controller's user"
                                : fmt::format("token {} ({})", caller.token, NameOf(caller.role));
  cordon.since = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return cordon;
}

void Fill(const DrainProgress& progress, v1::DrainIslandResponse* response) {
  response->set_cordoned(progress.cordoned);
  response->set_drained(progress.drained);
  response->set_more_holders(progress.holders - progress.most.size());
  response->set_watching(progress.watching);
  for (const IslandHolder& from : progress.most) {
    v1::IslandHolder* const to = response->add_holders();
    to->set_session(from.session.value);
    to->set_tenant(ValidUtf8(from.tenant));
    to->set_ended(from.ended);
    to->set_arrays(from.arrays);
    to->set_bytes(from.bytes);
    to->set_running(from.running);
    to->set_unfinished(from.unfinished);
  }
}

class Cordons {
 public:
  Cordons(const CallAccess* access, EventLoop* loop, Cluster* cluster, NoteEvent note)
      : access_(access), loop_(loop), cluster_(cluster), note_(std::move(note)) {}

  template <typename Call>
  void CordonIsland(Call* call) const {
    const Cordon by = CordonBy(call->caller());
    const auto changed = cluster_->fleet().CordonIsland(call->request().island(), by);
    if (changed.ok() && *changed) Tell(call->request().island(), "IslandCordoned", by);
    Change(call, "cordon", changed);
  }
  template <typename Call>
  void UncordonIsland(Call* call) const {
    const auto changed = cluster_->fleet().UncordonIsland(call->request().island());
    if (changed.ok() && *changed)
      Tell(call->request().island(), "IslandUncordoned", CordonBy(call->caller()));
    Change(call, "uncordon", changed);
  }
  template <typename Call>
  void DrainIsland(Call* call) const {
    const std::string& name = call->request().island();
    const Cordon by = CordonBy(call->caller());
    const auto progress = cluster_->fleet().DrainIsland(
        name, call->request().again() ? std::nullopt : std::optional(by));
    if (progress.ok() && progress->cordoned) Tell(name, "IslandCordoned", by);
    if (progress.ok() && progress->closed) Tell(name, "IslandDrained", by);
    if (!progress.ok() || progress->cordoned)
      Record(call->caller(), "drain", name, progress.status());
    if (progress.ok() && progress->closed)
      Record(call->caller(), "close drained", name, absl::OkStatus());
    if (!progress.ok()) return call->Answer(progress.status());
    LookAtHolders(call, std::make_shared<DrainProgress>(*progress));
  }

 private:
  // The sessions may be many: others have their turn in between.
  template <typename Call>
  void LookAtHolders(Call* call, const std::shared_ptr<DrainProgress>& progress) const {
    if (progress->holders > 0 &&
        !cluster_->fleet().LookAtHolders(call->request().island(), *progress)) {
      loop_->Post("admin DrainIsland",
                  [cordons = *this, call, progress] { cordons.LookAtHolders(call, progress); });
      return;
    }
    Fill(*progress, &call->response());
    call->Answer(absl::OkStatus());
  }
  template <typename Call>
  void Change(Call* call, std::string_view verb, const absl::StatusOr<bool>& changed) const {
    if (!changed.ok() || *changed)
      Record(call->caller(), verb, call->request().island(), changed.status());
    if (changed.ok()) call->response().set_changed(*changed);
    call->Answer(changed.status());
  }
  void Record(const Caller& caller, std::string_view verb, const std::string& island,
              const absl::Status& status) const {
    access_->Record(caller, Verb::kCordonIsland,
                    fmt::format("{} island {}", verb, BoundedText(island, 200)), status);
  }

  // What one operator does often pushes out what operators did before, and no event of islands.
  void Tell(const std::string& island, std::string reason, const Cordon& by) const {
    if (!note_) return;
    const std::string_view what = reason == "IslandCordoned" ? "it takes no new sessions: cordoned"
                                  : reason == "IslandUncordoned"
                                      ? "it takes new sessions: uncordoned"
                                      : "nobody has anything there: drained";
    NewEvent event = IslandEvent(island, std::move(reason), fmt::format("{} by {}", what, by.by));
    event.owner = "";  // no island has that name
    note_(std::move(event));
  }

  const CallAccess* access_;
  EventLoop* loop_;
  Cluster* cluster_;
  NoteEvent note_;
};

}  // namespace

void ServeCordons(GatedMethods& methods, EventLoop* loop, Cluster* cluster, NoteEvent note) {
  const Cordons cordons(&methods.access(), loop, cluster, std::move(note));
  methods.AddUnary<v1::CordonIslandRequest, v1::CordonIslandResponse>(
      "fairway.v1.Admin.CordonIsland", [loop, cordons](auto* call) {
        loop->Post("admin CordonIsland", [call, cordons] { cordons.CordonIsland(call); });
      });
  methods.AddUnary<v1::UncordonIslandRequest, v1::UncordonIslandResponse>(
      "fairway.v1.Admin.UncordonIsland", [loop, cordons](auto* call) {
        loop->Post("admin UncordonIsland", [call, cordons] { cordons.UncordonIsland(call); });
      });
  methods.AddUnary<v1::DrainIslandRequest, v1::DrainIslandResponse>(
      "fairway.v1.Admin.DrainIsland", [loop, cordons](auto* call) {
        loop->Post("admin DrainIsland", [call, cordons] { cordons.DrainIsland(call); });
      });
}

}  // namespace fairway
