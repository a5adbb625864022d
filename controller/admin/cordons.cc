// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/cordons.h"

#include <chrono>
#include <string>

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
  Cordons(const CallAccess* access, Cluster* cluster) : access_(access), cluster_(cluster) {}

  template <typename Call>
  void CordonIsland(Call* call) const {
    Change(call, "cordon",
           cluster_->fleet().CordonIsland(call->request().island(), CordonBy(call->caller())));
  }
  template <typename Call>
  void UncordonIsland(Call* call) const {
    Change(call, "uncordon", cluster_->fleet().UncordonIsland(call->request().island()));
  }
  template <typename Call>
  void DrainIsland(Call* call) const {
    const std::string& name = call->request().island();
    const auto progress = cluster_->fleet().DrainIsland(name, CordonBy(call->caller()));
    if (!progress.ok() || progress->cordoned)
      Record(call->caller(), "drain", name, progress.status());
    if (progress.ok()) Fill(*progress, &call->response());
    call->Answer(progress.status());
  }

 private:
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

  const CallAccess* access_;
  Cluster* cluster_;
};

}  // namespace

void ServeCordons(GatedMethods& methods, EventLoop* loop, Cluster* cluster) {
  const Cordons cordons(&methods.access(), cluster);
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
