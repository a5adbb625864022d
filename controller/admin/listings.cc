// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/listings.h"

#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "controller/cluster/listings.h"
#include "fairway/v1/admin.pb.h"
#include "identity/authorize.h"

namespace fairway {
namespace {

Cluster::Listings::Asked AskedBy(const Caller& caller, const v1::ListRequest& request) {
  Cluster::Listings::Asked asked;
  asked.session = SessionId(request.session());
  if (!SeesAllTenants(caller.role)) asked.tenant = caller.tenant;
  asked.transfers = request.transfers();
  asked.after = {request.after().session(), request.after().id()};
  return asked;
}

template <typename Row, typename Response>
void FillPage(const RowPage<Row>& page, Response* response) {
  response->set_total(page.total);
  if (!page.next.has_value()) return;
  response->mutable_next()->set_session(page.next->session);
  response->mutable_next()->set_id(page.next->id);
}

void FillNames(const std::vector<std::string>& from,
               google::protobuf::RepeatedPtrField<std::string>* to) {
  for (const std::string& name : from) *to->Add() = ValidUtf8(name);
}

void Fill(const SessionRow& from, v1::ListSessionsResponse* response) {
  v1::ListedSession* const to = response->add_sessions();
  to->set_id(from.id.value);
  to->set_tenant(ValidUtf8(from.tenant));
  to->set_state(from.state);
  to->set_devices(from.devices);
  to->set_arrays(from.arrays);
  to->set_programs(from.programs);
  to->set_computations(from.computations);
  to->set_nodes_unfinished(from.nodes);
  to->set_device_memory(from.device_bytes);
  to->set_record_memory(from.record_bytes);
}

void Fill(const ArrayRow& from, v1::ListArraysResponse* response) {
  v1::ListedArray* const to = response->add_arrays();
  to->set_session(from.session.value);
  to->set_handle(from.handle);
  to->set_tenant(ValidUtf8(from.tenant));
  to->set_type(ValidUtf8(from.type));
  to->set_state(from.state);
  FillNames(from.islands, to->mutable_islands());
  to->set_shards(from.shards);
  to->set_bytes(from.bytes);
  to->set_error(ValidUtf8(from.error));
}

void Fill(const ProgramRow& from, v1::ListProgramsResponse* response) {
  v1::ListedProgram* const to = response->add_programs();
  to->set_session(from.session.value);
  to->set_handle(from.handle);
  to->set_tenant(ValidUtf8(from.tenant));
  to->set_kind(from.is_program ? "program" : "computation");
  to->set_name(ValidUtf8(from.name));
  FillNames(from.islands, to->mutable_islands());
  to->set_steps(from.steps);
}

void Fill(const NodeRow& from, v1::ListNodesResponse* response) {
  v1::ListedNode* const to = response->add_nodes();
  to->set_id(from.id.value);
  to->set_session(from.session.value);
  to->set_tenant(ValidUtf8(from.tenant));
  to->set_kind(from.kind);
  to->set_state(from.state);
  to->set_name(ValidUtf8(from.name));
  to->set_island(ValidUtf8(from.island));
  FillNames(from.from, to->mutable_from());
  to->set_bytes(from.bytes);
  to->set_waits_for(ValidUtf8(from.waits_for));
}

void Fill(const Event& from, v1::ListEventsResponse* response) {
  v1::ListedEvent* const to = response->add_events();
  to->set_id(from.id);
  to->set_severity(from.what.warning ? "warning" : "normal");
  to->set_reason(from.what.reason);
  to->set_object(ValidUtf8(from.what.object));
  to->set_text(ValidUtf8(from.what.text));
  to->set_tenant(ValidUtf8(from.what.tenant));
  to->set_session(from.what.session);
  to->set_first_ms(from.first.time_since_epoch().count());
  to->set_last_ms(from.last.time_since_epoch().count());
  to->set_count(from.count);
}

// Serves `rpc` by the rows of `list`.
template <typename Response, typename Row>
void Serve(GatedMethods& methods, const std::string& rpc, EventLoop* loop, const Cluster* cluster,
           RowPage<Row> (Cluster::Listings::*list)(const Cluster::Listings::Asked&) const) {
  methods.AddUnary<v1::ListRequest, Response>(rpc, [loop, cluster, list](auto* call) {
    loop->Post("admin list", [call, cluster, list] {
      const RowPage<Row> page =
          (cluster->listings().*list)(AskedBy(call->caller(), call->request()));
      for (const Row& row : page.rows) Fill(row, &call->response());
      FillPage(page, &call->response());
      call->Answer(absl::OkStatus());
    });
  });
}

}  // namespace

void ServeListings(GatedMethods& methods, EventLoop* loop, const Cluster* cluster) {
  using Listings = Cluster::Listings;
  const std::string service = "fairway.v1.Admin.";
  Serve<v1::ListSessionsResponse>(methods, service + "ListSessions", loop, cluster,
                                  &Listings::Sessions);
  Serve<v1::ListArraysResponse>(methods, service + "ListArrays", loop, cluster, &Listings::Arrays);
  Serve<v1::ListProgramsResponse>(methods, service + "ListPrograms", loop, cluster,
                                  &Listings::Programs);
  Serve<v1::ListNodesResponse>(methods, service + "ListNodes", loop, cluster, &Listings::Nodes);
}

void ServeEvents(GatedMethods& methods, EventLoop* loop, const EventRing* events) {
  methods.AddUnary<v1::ListRequest, v1::ListEventsResponse>(
      "fairway.v1.Admin.ListEvents", [loop, events](auto* call) {
        loop->Post("admin events", [call, events] {
          EventRing::Asked asked{.session = call->request().session(),
                                 .after = call->request().after().id()};
          if (!SeesAllTenants(call->caller().role)) asked.tenant = call->caller().tenant;
          const EventRing::Page page = events->List(asked);
          for (const Event& event : page.events) Fill(event, &call->response());
          if (page.more) call->response().mutable_next()->set_id(page.events.back().id);
          call->Answer(absl::OkStatus());
        });
      });
}

}  // namespace fairway
