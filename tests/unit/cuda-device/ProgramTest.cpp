// Loading, launching and replaying programs: images, calls in their order, and numbers that
// come out right through device memory.
#include "Support.h"

using namespace cudatest;

namespace {

std::string loadFailure(CudaDevice &device, Program program) {
  return device.load(std::move(program)).status().toString();
}

/// Uploads, binds, runs, downloads.
Status runStaged(const std::shared_ptr<DeviceProgram> &program, Case &data,
                 const BindOptions &options = {}) {
  StatusOr<std::unique_ptr<Stream>> stream = program->device()->createStream();
  if (!stream)
    return stream.status();
  CallArguments host = data.arguments();
  StatusOr<StagedArrays> staged = StagedArrays::upload(**stream, program->program(), host);
  if (!staged)
    return staged.status();
  StatusOr<BoundCall> call = BoundCall::bind(program, staged->arguments(), options);
  if (!call)
    return call.status();
  LLMOPT_RETURN_IF_ERROR(call->run(**stream));
  return staged->download(**stream);
}

} // namespace

TEST_F(CudaTest, NumbersComeOutRightThroughDeviceMemory) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  for (uint32_t splits : {1, 3}) {
    Case data(Spec(), {1, 5, 0}, {40, 17, 3});
    BindOptions options{.plan = {.workers = 6, .splitPolicy = SplitPolicy::Fixed, .splits = splits},
                        .validatePages = true};
    Status status = runStaged(program, data, options);
    ASSERT_TRUE(status.ok()) << status.toString();
    data.expectRight();
  }
}

TEST_F(CudaTest, TheSequenceOfALaunch) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  Case data(Spec(), {1}, {40});
  BindOptions options{.plan = {.workers = 6, .splitPolicy = SplitPolicy::Fixed, .splits = 2}};
  ASSERT_TRUE(runStaged(program, data, options).ok());
  EXPECT_EQ(fake.calls({"cuLaunchKernel"}),
            (std::vector<std::string>{"cuLaunchKernel attend grid 6 block 128 shared 65536",
                                      "cuLaunchKernel attend grid 6 block 128 shared 65536",
                                      "cuLaunchKernel merge grid 6 block 128 shared 0"}));
  EXPECT_EQ(fake.calls({"cuFuncSetAttribute"}).front(), "cuFuncSetAttribute attend 8 65536");
  std::vector<std::string> copies = fake.calls({"cuMemcpyDtoHAsync", "cuStreamSynchronize"});
  EXPECT_EQ(copies.back(), "cuStreamSynchronize") << "after the last copy back";
}

TEST_F(CudaTest, WorkersFillTheDevice) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  EXPECT_EQ(program->residentWorkers(), 32u) << "4 multiprocessors, 8 blocks of 128 threads";
  Spec append{.append = true};
  Program wide = cudaProgram(append);
  wide.kernels[0].blockThreads = 1024; // appends only, and not what takes the time
  EXPECT_EQ((*program->device()->load(wide))->residentWorkers(), 32u);
  Case data(Spec(), {1}, {40});
  ASSERT_TRUE(runStaged(program, data).ok());
  EXPECT_EQ(fake.calls({"cuLaunchKernel"}).front(),
            "cuLaunchKernel attend grid 32 block 128 shared 65536");
}

TEST_F(CudaTest, AReplayRunsTheBatchThatWasPlannedLast) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  Case data(Spec(), {1, 1}, {40, 9});
  std::unique_ptr<Stream> stream = *program->device()->createStream();
  CallArguments host = data.arguments();
  StatusOr<StagedArrays> staged = StagedArrays::upload(*stream, program->program(), host);
  ASSERT_TRUE(staged);
  BindOptions options{.plan = {.workers = 6, .splitPolicy = SplitPolicy::Fixed, .splits = 2},
                      .replayable = true};
  StatusOr<BoundCall> call = BoundCall::bind(program, staged->arguments(), options);
  ASSERT_TRUE(call) << call.status().toString();
  ASSERT_TRUE(call->prepare(*stream).ok());
  ASSERT_TRUE(stream->beginCapture().ok());
  ASSERT_TRUE(call->run(*stream).ok());
  std::unique_ptr<Graph> graph = *stream->endCapture();
  program.reset(); // the graph keeps what it launches
  for (std::vector<int32_t> keys : {std::vector<int32_t>{40, 9}, {3, 12}, {0, 0}}) {
    data.keyLens = keys;
    ASSERT_TRUE(call->replan(staged->arguments()).ok());
    ASSERT_TRUE(call->prepare(*stream).ok());
    ASSERT_TRUE(stream->replay(*graph).ok());
    ASSERT_TRUE(staged->download(*stream).ok());
    data.expectRight();
  }
  EXPECT_EQ(
      fake.calls({"cuStreamBeginCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"}),
      (std::vector<std::string>{"cuStreamBeginCapture 1", "cuGraphInstantiateWithFlags 4 nodes",
                                "cuGraphLaunch", "cuGraphLaunch", "cuGraphLaunch"}));
}

TEST_F(CudaTest, ArraysThatThePlannerReadsNeedAHostCopy) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  Case data(Spec(), {1}, {5});
  std::unique_ptr<Stream> stream = *program->device()->createStream();
  CallArguments host = data.arguments();
  StatusOr<StagedArrays> staged = StagedArrays::upload(*stream, program->program(), host);
  ASSERT_TRUE(staged);
  CallArguments arguments = staged->arguments();
  for (auto &[name, array] : arguments.arrays)
    if (name != "kv_len")
      continue;
    else
      array.host = nullptr;
  EXPECT_EQ(BoundCall::bind(program, arguments).status().message(),
            "array 'kv_len' lies in device memory and the planner reads it; give its host copy as "
            "well (ArrayRef::host)");
  arguments = staged->arguments();
  arguments.arrays["table"].host = nullptr; // then it is not checked, and not read
  EXPECT_TRUE(BoundCall::bind(program, arguments, {.validatePages = true}));
  ASSERT_TRUE(stream->synchronize().ok());
}

TEST_F(CudaTest, MachineCodeFirstThenPtx) { // A43
  std::shared_ptr<CudaDevice> device = open();
  EXPECT_EQ((*device->load(cudaProgram(Spec())))->imageChoice().substr(0, 34),
            "attend: machine code for sm_80; at");
  Program later = cudaProgram(Spec(), "sm_90", "compute_80");
  EXPECT_NE((*device->load(later))
                ->imageChoice()
                .find("attend: PTX for compute_80 (machine code "
                      "for sm_90 does not run on sm_80)"),
            std::string::npos);
  fake.fail("cuModuleLoadDataEx", 209, 0); // a driver that refuses the machine code
  std::string choice = (*device->load(cudaProgram(Spec())))->imageChoice();
  EXPECT_NE(choice.find("attend: PTX for compute_80 (machine code for sm_80: cuModuleLoadDataEx "
                        "failed"),
            std::string::npos)
      << choice;
}

TEST_F(CudaTest, NothingThatRunsIsARefusalWithAllReasons) { // A25, A43, an old driver
  std::shared_ptr<CudaDevice> device = open();
  EXPECT_EQ(loadFailure(*device, cudaProgram(Spec(), "sm_90", "compute_90")),
            "Unavailable: program 'scalar_attention': kernel 'attend' has no image for 'Fake GPU' "
            "(sm_80): machine code for sm_90 does not run on sm_80; PTX for compute_90 does not "
            "run on sm_80");
  device.reset();
  fake.set("version", 12040);
  EXPECT_EQ(loadFailure(*open(), cudaProgram(Spec())),
            "Unavailable: program 'scalar_attention': kernel 'attend' has no image for 'Fake GPU' "
            "(sm_80): machine code for sm_80 needs a driver for CUDA 13.0; this one supports 12.4; "
            "update it, or compile with NVRTC 12; PTX for compute_80 needs a driver for CUDA 13.0; "
            "this one supports 12.4; update it, or compile with NVRTC 12");
}

TEST_F(CudaTest, ACpuProgramIsRefused) {
  EXPECT_NE(loadFailure(*open(), makeProgram(Spec()))
                .find("object code for x86_64-unknown-linux-gnu "
                      "is for a CPU"),
            std::string::npos);
}

TEST_F(CudaTest, TheBestProgramOfAFamily) { // case flashinfer#1115: judged by the device present
  std::shared_ptr<CudaDevice> device = open();
  auto targetOf = [&](std::vector<Program> family) {
    StatusOr<std::shared_ptr<DeviceProgram>> loaded = loadBest(*device, std::move(family));
    return loaded ? (*loaded)->program().target : loaded.status().message();
  };
  Program cpu = makeProgram(Spec()), old = cudaProgram(Spec(), "sm_75", "compute_75"),
          own = cudaProgram(Spec()), later = cudaProgram(Spec(), "sm_90", "compute_90");
  EXPECT_EQ(targetOf({cpu, old, own, later}), "cuda:sm_80");
  EXPECT_EQ(targetOf({cpu, old, later}), "cuda:sm_75") << "by its PTX";
  EXPECT_EQ(targetOf({cpu}), "nothing in the bundle runs on device 'Fake GPU': the program for cpu "
                             "is for another kind of device");
  EXPECT_EQ((*loadBest(*cpuDevice(), {own, cpu}))->program().target, "cpu");
}

TEST_F(CudaTest, KernelsThatDoNotFitAreRefusedAtLoad) {
  std::shared_ptr<CudaDevice> device = open();
  Program big = cudaProgram(Spec());
  big.kernels[0].sharedBytes = 200000;
  EXPECT_EQ(loadFailure(*device, big),
            "Unavailable: program 'scalar_attention': kernel 'attend' needs 200000 bytes of shared "
            "memory; the device has 166912; compile for sm_80");
  Program cluster = cudaProgram(Spec());
  cluster.kernels[0].clusterBlocks = 2;
  EXPECT_NE(loadFailure(*device, cluster).find("clusters of 2 blocks"), std::string::npos);
  Program missing = cudaProgram(Spec());
  missing.kernels[0].entry = "nothing";
  EXPECT_NE(loadFailure(*device, missing).find("cuModuleGetFunction failed"), std::string::npos);
  Program broken = cudaProgram(Spec());
  broken.images[0].bytes = {1, 2, 3}, broken.images[1].bytes = {4, 5};
  EXPECT_NE(loadFailure(*device, broken).find("the image is neither machine code nor PTX"),
            std::string::npos);
}

TEST_F(CudaTest, AFailedLaunchNamesTheKernel) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  Case data(Spec(), {1}, {5});
  fake.fail("cuLaunchKernel", 1, 0);
  EXPECT_EQ(runStaged(program, data).toString(),
            "Internal: kernel 'attend' of program 'scalar_attention': cuLaunchKernel failed: "
            "invalid argument (CUDA_ERROR_INVALID_VALUE)");
  ASSERT_TRUE(runStaged(program, data).ok()) << "the next call may do";
  data.expectRight();
}

TEST_F(CudaTest, AKernelThatFaultsIsReportedByTheSynchronisation) {
  {
    std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
    Case data(Spec(), {1}, {5});
    fake.fail("cuLaunchKernel", 700, 0);
    Status status = runStaged(program, data);
    EXPECT_EQ(status.code(), StatusCode::Internal);
    EXPECT_NE(status.message().find("start the process anew"), std::string::npos)
        << status.toString();
    EXPECT_FALSE(runStaged(program, data).ok()) << "a lost device stays lost";
  }
  fake.reset(); // nothing can be given back to it
}

TEST_F(CudaTest, OnlyWhatIsWrittenComesBackUnlessAllIsWanted) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  std::unique_ptr<Stream> stream = *program->device()->createStream();
  for (auto which : {StagedArrays::Which::Written, StagedArrays::Which::All}) {
    Case data(Spec(), {1}, {5});
    CallArguments host = data.arguments();
    StatusOr<StagedArrays> staged = StagedArrays::upload(*stream, program->program(), host);
    ASSERT_TRUE(staged && stream->synchronize().ok());
    data.query[0] = 123, data.output[0] = 123;
    ASSERT_TRUE(staged->download(*stream, which).ok());
    EXPECT_EQ(data.query[0] == 123, which == StagedArrays::Which::Written);
    EXPECT_NE(data.output[0], 123);
  }
}

TEST_F(CudaTest, GuardZonesTravelWithTheirArray) {
  std::shared_ptr<DeviceProgram> program = *open()->load(cudaProgram(Spec()));
  std::unique_ptr<Stream> stream = *program->device()->createStream();
  Case data(Spec(), {1}, {5});
  std::vector<float> guarded(data.output.size() + 32, 55);
  CallArguments host = data.arguments();
  host.arrays["o"].data = guarded.data() + 16;
  ArrayStorage storage{{"o", {reinterpret_cast<uint8_t *>(guarded.data()), guarded.size() * 4}}};
  StatusOr<StagedArrays> staged = StagedArrays::upload(*stream, program->program(), host, storage);
  ASSERT_TRUE(staged);
  StatusOr<BoundCall> call = BoundCall::bind(program, staged->arguments());
  ASSERT_TRUE(call && call->run(*stream).ok() && staged->download(*stream).ok());
  std::copy_n(guarded.begin() + 16, data.output.size(), data.output.begin());
  data.expectRight();
  for (size_t i = 0; i < 16; ++i)
    EXPECT_TRUE(guarded[i] == 55 && guarded[guarded.size() - 1 - i] == 55);
}
