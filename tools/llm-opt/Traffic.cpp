#include "tools/llm-opt/Traffic.h"

#include <algorithm>

namespace llmopt::cli {
namespace {

bool isKeyRole(bundle::BufferRole role) {
  using bundle::BufferRole;
  return role == BufferRole::Key || role == BufferRole::Value || role == BufferRole::KeyPool ||
         role == BufferRole::ValuePool;
}

bool isRowRole(bundle::BufferRole role) {
  using bundle::BufferRole;
  return role == BufferRole::Query || role == BufferRole::Output || role == BufferRole::Lse ||
         role == BufferRole::PartialOut || role == BufferRole::PartialLse;
}

bool isQuery(bundle::BufferRole role) { return role == bundle::BufferRole::Query; }

} // namespace

double Traffic::uniqueTables() const {
  double all = 0;
  for (const auto &[name, table] : tables)
    all += table.unique;
  return all;
}

Traffic trafficOf(const bundle::Program &program, const Profiles &profiles) {
  Traffic traffic;
  for (const auto &[entry, profile] : profiles) {
    for (const sim::BufferProfile &buffer : profile.buffers) {
      // An allocation with several arrays has all their names: "items, rows".
      auto holds = [&](auto isRole) {
        return std::any_of(program.buffers.begin(), program.buffers.end(), [&](const auto &b) {
          return isRole(b.role) &&
                 (", " + buffer.name + ",").find(", " + b.name + ",") != std::string::npos;
        });
      };
      auto bytes = double(buffer.loadBytes + buffer.storeBytes);
      if (holds(isKeyRole)) {
        traffic.keys += bytes;
        traffic.uniqueKeys += double(buffer.uniqueLoadBytes + buffer.uniqueStoreBytes);
      } else if (holds(isRowRole)) {
        traffic.queries += bytes;
        if (holds(isQuery))
          traffic.queryLoads += double(buffer.loadBytes);
        else
          traffic.uniquePartials += double(buffer.uniqueLoadBytes);
      } else {
        traffic.others += bytes;
        if (!buffer.loadBytes)
          continue;
        TableTraffic &table = traffic.tables[buffer.name];
        table.asked += double(buffer.loadBytes);
        table.unique += double(buffer.uniqueLoadBytes);
      }
    }
  }
  return traffic;
}

double matrixConflicts(const Profiles &profiles) {
  double all = 0, ideal = 0;
  for (const auto &[entry, profile] : profiles)
    for (const sim::InstProfile &inst : profile.instructions)
      if (inst.text.find("ldmatrix") != std::string::npos ||
          inst.text.find("cp.async") != std::string::npos) {
        all += double(inst.sharedWavefronts);
        ideal += double(inst.sharedIdeal);
      }
  return ideal ? all / ideal : 0;
}

} // namespace llmopt::cli
