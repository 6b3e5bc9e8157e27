// Kernels want numbers and arrays that no step has: what the layer group does not give is refused
// at load, by the kernel's name and with what to do; what it gives is used.
#include "CApi.h"
#include "FailingDevice.h"

#include "runtime/api/Server.h"
#include "runtime/bundle/BundleIO.h"
#include "runtime/device/cpu/CpuDevice.h"

namespace llmopt::test {
namespace {

const TinyGroup kWindow = {{0, 1}, 16, 20, 0};
const char *const kLacksNumber =
    "kernel 'attend' of layer group 0: it wants a number 'arg0', for which its spec has no value; "
    "write one into the spec, or give one in the group's numbers";

void replace(std::string &text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

/// A window that each call gives, as a number or as an array of a value for each head.
std::string attendSpec(const char *type) {
  std::string text = pagedSpec({}, kWindow);
  replace(text, "!attn.sequences)", fmt::format("!attn.sequences, %w: {})", type));
  replace(text, "%seq ", fmt::format("%seq args(%w : {})", type));
  replace(text, "window<20>", "window<arg0>");
  return text;
}

/// As its users call it.
KernelSource sourceOf(const char *type) {
  return [=](const std::string &name) -> StatusOr<std::vector<bundle::Program>> {
    StatusOr<bundle::Program> program =
        compileText(name == "append" ? appendSpec({}, kWindow) : attendSpec(type));
    if (!program)
      return program.status();
    return std::vector<bundle::Program>{*std::move(program)};
  };
}

class GivenNumbers : public CApi {
protected:
  GivenNumbers() {
    TinyGroup full = kWindow;
    full.window = 0;
    wanted.groups = {layerGroup({}, full)};
    wanted.groups[0].appendKernel = "append";
    for (step::Phase phase : {step::Phase::Prefill, step::Phase::Decode})
      wanted.rules.push_back({0, phase, 1, phase == step::Phase::Prefill ? 512u : 1u, "attend"});
    wanted.scheduler.tokenBudget = 512;
    wanted.scheduler.maxLength = 1024;
  }

  std::string refusal(const char *type) {
    return llmopt::runtime::Server::create(on, wanted, sourceOf(type), tiny).status().toString();
  }
  /// With a window of 20.
  void expectServed(const char *type) {
    auto made = llmopt::runtime::Server::create(on, wanted, sourceOf(type), tiny);
    ASSERT_TRUE(made.ok()) << made.status().toString();
    std::vector<kv::Token> prompt = somePrompt(1), answer;
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 25;
    ASSERT_TRUE((*made)->submit(params).ok());
    for (StatusOr<bool> more = true; more && *more; more = (*made)->advance())
      for (ServerEvent event; (*made)->next(event);)
        if (event.kind == ServerEvent::Kind::Token)
          answer.push_back(event.token);
    EXPECT_EQ(answer, Alone(own.model, {}, {kWindow}).run(prompt, 25).tokens);
  }

  TinyLayers tiny{own.model};
  std::shared_ptr<Device> on = *CpuDevice::create(1);
  llmopt::runtime::ServerOptions wanted;
};

TEST_F(GivenNumbers, OneThatTheGroupLacksIsRefusedByKernelAndName) {
  EXPECT_EQ(refusal("i32"), std::string("InvalidArgument: ") + kLacksNumber);
  wanted.groups[0].numbers["arg0"] = 20.5;
  EXPECT_EQ(refusal("i32"), "InvalidArgument: kernel 'attend' of layer group 0: scalar 'arg0' is "
                            "20.5; the program wants an integer");
  wanted.groups[0].numbers["arg0"] = int64_t{20};
  expectServed("i32");
}

TEST_F(GivenNumbers, AnArrayThatTheGroupLacksIsRefusedByKernelAndName) {
  StatusOr<std::vector<bundle::Program>> attend = sourceOf("tensor<4xi32>")("attend");
  ASSERT_TRUE(attend.ok()) << attend.status().toString();
  std::string name;
  for (const bundle::Buffer &buffer : attend->front().buffers)
    if (buffer.role == bundle::BufferRole::PerHead)
      name = buffer.name;
  EXPECT_EQ(refusal("tensor<4xi32>"),
            "InvalidArgument: kernel 'attend' of layer group 0: it wants an array '" + name +
                "' (per-head values), which no step has; give one for each layer in the group's "
                "extraArrays");
  int32_t windows[4] = {20, 20, 20, 20};
  ArrayRef array = ArrayRef::contiguous(windows, bundle::ElementType::I32, {4});
  wanted.groups[0].extraArrays.assign(2, {{name, array}});
  expectServed("tensor<4xi32>");

  // The planner reads it: from a copy, where the device's memory is not the host's.
  auto apart = std::make_shared<FailingDevice>(on);
  apart->hideHostMemory();
  on = apart;
  EXPECT_EQ(refusal("tensor<4xi32>"),
            "InvalidArgument: kernel 'attend' of layer group 0: its array '" + name +
                "' lies in device memory and the planner reads it; give its host copy as well "
                "(ArrayRef::host)");
  array.host = windows;
  wanted.groups[0].extraArrays.assign(2, {{name, array}});
  expectServed("tensor<4xi32>");
}

// Scales stay with their pages (KvQuantised.*); kernels that read them are not served yet.
TEST_F(GivenNumbers, PagesWithScalesAreRefusedAndOthersServed) {
  wanted.groups[0].numbers["arg0"] = int64_t{20};
  wanted.groups[0].pages.scaleBytes = 64;
  EXPECT_EQ(refusal("i32"),
            "Unsupported: pages of layer group 0 have 64 bytes of scales, which no kernel of a "
            "server reads or writes; serve a cache that is not quantised, with scaleBytes 0");
  wanted.groups[0].pages.scaleBytes = 0;
  wanted.groups[0].pages.dataBytes -= 1;
  EXPECT_EQ(refusal("i32"),
            "InvalidArgument: pages of layer group 0 have 4095 bytes; its 2 layers need 4096");
  wanted.groups[0].pages.dataBytes = 0;
  expectServed("i32");
}

TEST_F(GivenNumbers, OfTheCApiAreRefusedAndUsedAlike) {
  KernelSource kernels = sourceOf("i32");
  auto create = [&](llmopt_code code) {
    auto give = [](void *user, const char *name, const void **bundle,
                   size_t *bytes) -> llmopt_status * {
      static std::vector<uint8_t> kept;
      kept = bundle::serialize((*static_cast<KernelSource *>(user))(name)->front());
      *bundle = kept.data();
      *bytes = kept.size();
      return nullptr;
    };
    return take(llmopt_server_new(device, &options, give, &kernels, &model, &server), code);
  };
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT), kLacksNumber);
  group.numbers_n = 1;
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT), "a number is NULL");
  llmopt_number number = {sizeof(number), nullptr, 1, 20, 0};
  group.numbers = &number;
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT), "the name of a number is NULL");
  number.name = "arg1";
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT),
            "layer group 0 has a number 'arg1', which none of its kernels takes");
  number.name = "arg0";
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  uint64_t id = submit(prompt);
  EXPECT_EQ(runOut()[id], "length");
  EXPECT_EQ(answers[id], Alone(own.model, {}, {kWindow}).run(prompt, 25, false, 5).tokens);
}

} // namespace
} // namespace llmopt::test
