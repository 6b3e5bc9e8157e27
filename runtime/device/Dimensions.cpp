#include "runtime/device/Dimensions.h"

#include <array>

namespace llmopt::runtime {

using bundle::Buffer;
using bundle::BufferRole;
using bundle::KvForm;
using bundle::KvOrder;
using bundle::Program;
using bundle::TableForm;

namespace {

using Dimensions = std::vector<Dimension>;

/// (batch, length, ...) or (tokens, ...): the rank tells which.
Dimensions sequenceDimensions(size_t rank, Dimension length, Dimension tokens, Dimensions rest) {
  Dimensions all;
  if (rank == rest.size() + 2)
    all = {Dimension::Batch, length};
  else if (rank == rest.size() + 1)
    all = {tokens};
  else
    return {};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

Dimensions poolDimensions(const Program &program, size_t rank, Dimension width) {
  Dimensions all = {Dimension::Page};
  if (program.facts.interleaved && rank == 5)
    all.push_back(Dimension::Any);
  if (program.facts.kvOrder == KvOrder::TokenMajor)
    all.insert(all.end(), {Dimension::PageSize, Dimension::KvHead, width});
  else
    all.insert(all.end(), {Dimension::KvHead, Dimension::PageSize, width});
  return all;
}

std::string_view nameOf(Dimension dimension) {
  constexpr std::array<std::string_view, static_cast<size_t>(Dimension::Count)> names = {
      "",      "batch", "batch plus one", "queries",         "query tokens",
      "heads", "keys",  "key tokens",     "key/value heads", "d_qk",
      "d_v",   "pages", "page size",      "appended tokens", "partials to merge"};
  return names[static_cast<size_t>(dimension)];
}

/// A value and who said so.
struct Claim {
  int64_t value = -1;
  std::string source;
};
using Claims = std::array<Claim, static_cast<size_t>(Dimension::Count)>;

Claim &claimOf(Claims &claims, Dimension dimension) {
  return claims[static_cast<size_t>(dimension)];
}

Claims claimsOfFacts(const Program &program) {
  Claims claims;
  auto claim = [&](Dimension dimension, uint32_t value) {
    if (value > 0)
      claimOf(claims, dimension) = {value, "the program"};
  };
  claim(Dimension::QueryHead, program.facts.queryHeads);
  claim(Dimension::KvHead, program.facts.kvHeads);
  claim(Dimension::DQk, program.facts.dQk);
  claim(Dimension::DV, program.facts.dV);
  claim(Dimension::PageSize, program.facts.pageSize);
  return claims;
}

Status checkExtent(Claims &claims, Dimension dimension, const Buffer &buffer, size_t dim,
                   int64_t extent) {
  // B + 1 offsets and B sequences are the same claim.
  bool offsets = dimension == Dimension::BatchPlusOne;
  if (offsets && extent == 0)
    return invalidArgument("array '{}' has no entry; an offset for each sequence and one "
                           "more are needed",
                           buffer.name);
  Claim &claim = claimOf(claims, offsets ? Dimension::Batch : dimension);
  int64_t value = offsets ? extent - 1 : extent;
  if (claim.source.empty()) {
    claim = {value, fmt::format("array '{}'", buffer.name)};
    return {};
  }
  if (claim.value == value)
    return {};
  return invalidArgument("array '{}' has extent {} in dimension {} ({}); {} asks for {}",
                         buffer.name, extent, dim, nameOf(dimension), claim.source,
                         offsets ? claim.value + 1 : claim.value);
}

} // namespace

Dimensions dimensionsOf(const Program &program, const Buffer &buffer) {
  using D = Dimension;
  size_t rank = buffer.extents.size();
  switch (buffer.role) {
  case BufferRole::Query:
    return sequenceDimensions(rank, D::Query, D::QueryToken, {D::QueryHead, D::DQk});
  case BufferRole::Output:
    return sequenceDimensions(rank, D::Query, D::QueryToken, {D::QueryHead, D::DV});
  case BufferRole::Lse:
    return sequenceDimensions(rank, D::Query, D::QueryToken, {D::QueryHead});
  case BufferRole::Tree:
    return sequenceDimensions(rank, D::Query, D::QueryToken, {});
  case BufferRole::Key:
    return sequenceDimensions(rank, D::Key, D::KeyToken, {D::KvHead, D::DQk});
  case BufferRole::Value:
    return sequenceDimensions(rank, D::Key, D::KeyToken, {D::KvHead, D::DV});
  case BufferRole::KeyPool:
    return poolDimensions(program, rank, D::DQk);
  case BufferRole::ValuePool:
    return poolDimensions(program, rank, D::DV);
  case BufferRole::BlockTable:
    if (program.facts.tableForm == TableForm::BlockTable)
      return {D::Batch, D::Any};
    return {D::Any};
  case BufferRole::TableIndptr:
  case BufferRole::CuSeqlensQ:
  case BufferRole::CuSeqlensKv:
    return {D::BatchPlusOne};
  case BufferRole::KvLen:
    return {D::Batch};
  case BufferRole::SlotMapping:
    return {D::Appended};
  case BufferRole::NewKey:
    return {D::Appended, D::KvHead, D::DQk};
  case BufferRole::NewValue:
    return {D::Appended, D::KvHead, D::DV};
  case BufferRole::PerHead:
  case BufferRole::SinkLogit:
    return {D::QueryHead};
  case BufferRole::PartialIn:
    return {D::Splits, D::QueryToken, D::QueryHead, D::DV};
  case BufferRole::PartialLseIn:
    return {D::Splits, D::QueryToken, D::QueryHead};
  default:
    return {};
  }
}

Status checkDimensions(const Program &program, const BoundArrays &arrays) {
  Claims claims = claimsOfFacts(program);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (!arrays[i])
      continue;
    const Buffer &buffer = program.buffers[i];
    Dimensions dimensions = dimensionsOf(program, buffer);
    if (dimensions.size() != buffer.extents.size())
      continue; // a form of its own, which only its kernels understand
    for (size_t dim = 0; dim < dimensions.size(); ++dim)
      if (dimensions[dim] != Dimension::Any)
        LLMOPT_RETURN_IF_ERROR(
            checkExtent(claims, dimensions[dim], buffer, dim, arrays[i]->shape[dim]));
  }
  return {};
}

std::optional<int64_t> extentOf(const Program &program, const BoundArrays &arrays,
                                Dimension dimension) {
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (!arrays[i])
      continue;
    Dimensions dimensions = dimensionsOf(program, program.buffers[i]);
    if (dimensions.size() != program.buffers[i].extents.size())
      continue;
    for (size_t dim = 0; dim < dimensions.size(); ++dim) {
      if (dimensions[dim] == dimension)
        return arrays[i]->shape[dim];
      if (dimension == Dimension::Batch && dimensions[dim] == Dimension::BatchPlusOne)
        return arrays[i]->shape[dim] - 1;
    }
  }
  return std::nullopt;
}

} // namespace llmopt::runtime
