# SPDX-License-Identifier: Apache-2.0
"""Programs for GPUs, compiled by the worker's compile process with the real plugin and no GPU."""

import pathlib
import re
import subprocess
import sys
import time

import programs
import pytest
from cluster import BIN, clean_environment
from compile_process import CompileProcess, Refused, work_of_children
from conftest import TARGET

INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED = 3, 8, 12

# A program, and the parts that its optimized form must contain.
COMPILED = {
    "elementwise": (programs.elementwise, r"kind=kLoop"),
    "product": (programs.product, r"__cublas\$lt\$matmul"),
    "convolution": (programs.convolution, r"__cudnn\$conv"),
    "attention": (programs.attention, r"__cublas\$"),
    "sort": (programs.sort, r"sort|DeviceRadixSort"),
    "random": (programs.random, r"fusion"),
    "training step": (programs.training_step, r"__cublas\$"),
    "donation": (lambda: programs.DONATING, r"fusion|add"),
    "pinned_host": (lambda: programs.IN_PINNED_HOST, r"fusion|add"),
    "psum over 8 devices": (programs.summed_over_eight_devices, r"all-reduce"),
}


# Compiles the product with the plugin alone, for the same target: JAX gives the plugin no options of its own.
BY_DEFAULT = """
import sys

import jax, jax.numpy as jnp
from jax._src.lib import _jax, xla_client
from jax.experimental import topologies

plugin, target = sys.argv[1:]
xla_client.load_pjrt_plugin_dynamically("cuda", plugin)
xla_client.initialize_pjrt_plugin("cuda")
described = _jax.get_default_c_api_topology("cuda", "topology", {"topology": "1x1x1", "target_config": target})
device = topologies.TopologyDescription(described._make_compile_only_devices()).devices[0]
x = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16, sharding=jax.sharding.SingleDeviceSharding(device))
print(jax.jit(lambda x, y: x @ y + x).lower(x, x).compile().as_text())
"""


# Such a product in the form in which a compile process prints programs.
PRINTED = """HloModule jit_f

fused_computation.1 {
  param_0.3 = bf16[1024,1024]{1,0} parameter(0)
  param_1.3 = bf16[1024,1024]{1,0} parameter(1)
  dot.3 = bf16[1024,1024]{1,0} dot(param_0.3, param_1.3)
  ROOT add.0 = bf16[1024,1024]{1,0} add(dot.3, param_0.3)
}

ENTRY main.1 {
  ROOT gemm_fusion_dot.1 = bf16[1024,1024]{1,0} fusion(Arg_0.1, Arg_1.1), kind=kCustom, calls=fused_computation.1
}
"""


def untuned_products(hlo):
    """Products that are Triton kernels with guessed tiles: the names of custom fusions of a dot."""
    hlo = hlo.replace("%", "")
    bodies = re.split(r"\n\n+", hlo)
    return [name for body in bodies if re.search(r"= \S+ dot\(", body)
            and re.search(r"kind=kCustom, calls=" + re.escape(name := body.split()[0]) + r"\b", hlo)]


@pytest.mark.parametrize("name", COMPILED)
def test_it_compiles_without_a_gpu(compiler, name):
    make, expected = COMPILED[name]
    program, began = make(), time.monotonic()
    compiled = compiler.compile(program, devices=8 if "8 devices" in name else 1)
    seconds = time.monotonic() - began
    memory = compiled.metadata.memory
    print(f"{name}: {seconds:.2f} s, {memory.temp} bytes of temporaries, {len(compiled.code.native)} of code")
    assert re.search(expected, compiled.text), compiled.text[:4000]
    # If it has code of its own, that is machine code: the driver would have to compile PTX.
    assert b".target sm_" not in compiled.code.native
    only_calls = name in ("product", "psum over 8 devices")
    assert b"\x7fELF" in compiled.code.native or only_calls
    assert "NVIDIA H200, target " in compiled.code.plugin
    assert not untuned_products(compiled.text)


def test_signature_and_memory(compiler):
    donating = compiler.compile(programs.DONATING)
    assert donating.metadata.parameters[0].donated
    assert donating.metadata.memory.alias == 4096
    pinned = compiler.compile(programs.IN_PINNED_HOST)
    assert pinned.metadata.outputs[0].memory_kind == "pinned_host"
    summed = compiler.compile(programs.summed_over_eight_devices(), devices=8)
    assert list(summed.metadata.parameters[0].shard_dims) == [8, 128]
    assert not summed.code.separable


def test_what_the_plugin_makes_by_default_is_an_untuned_product(plugin):
    """So the tests that look for one here would find it."""
    done = subprocess.run([sys.executable, "-c", BY_DEFAULT, plugin, TARGET], text=True, capture_output=True,
                          timeout=600, env=clean_environment(JAX_PLATFORMS="cpu"))
    assert len(untuned_products(done.stdout)) == 1, done.stdout + done.stderr
    assert untuned_products(PRINTED) == ["fused_computation.1"]


def test_no_option_brings_untuned_products_back(compiler):
    program = programs.product()
    assert not untuned_products(compiler.compile(program, xla_gpu_enable_triton_gemm=True).text)


def test_a_convolution_has_an_algorithm(compiler):
    """XLA's default leaves it to a tuning at run time, which plugins no longer do: cuDNN refuses engine -1. Seen
    on an H100 with plugin 0.11.2."""
    for options in ({}, {"xla_gpu_autotune_level": 4}):
        compiled = compiler.compile(programs.convolution(), **options)
        assert "__cudnn$convForward" in compiled.text
        assert b'"algorithm' not in compiled.code.native  # written only if it is not the first one


WITHOUT_NVJITLINK = re.compile(r"0\.1[01]\.")


def version(plugin):
    """That of the package which brought the plugin."""
    info, = plugin.parents[2].glob("jax_cuda13_pjrt-*.dist-info")
    return info.name.removesuffix(".dist-info").split("-")[1]


def test_it_makes_no_client_and_executes_nothing(plugin, compiler):
    compiler.compile(programs.elementwise())
    process = pathlib.Path("/proc", str(compiler.process.pid))
    maps = (process / "maps").read_text()
    assert "libcuda.so" not in maps  # a client would open the driver first
    if WITHOUT_NVJITLINK.match(version(plugin)):
        assert "libnvJitLink" not in maps
        pytest.skip("this version of the plugin does not use nvJitLink: test_assembler.py")
    assert "libnvJitLink" in maps
    status = (process / "status").read_text()
    assert re.search(r"^Seccomp:\s+2$", status, re.M)
    assert (process / "task" / str(compiler.process.pid) / "children").read_text() == ""
    assert work_of_children(compiler.process.pid) == 0  # it never had a child either
    assert compiler.ready.status_message == b""


@pytest.mark.parametrize("target, cause", [
    ("", "empty target configuration"),
    ("  \n", "empty target configuration"),
    ("this is none", "cannot read the target configuration"),
    ("gpu_device_info { no_such_field: 1 }", "cannot read the target configuration"),
    ("\x00\x01\x02", "cannot read the target configuration"),
])
def test_a_target_that_is_none_is_refused(plugin, target, cause):
    with pytest.raises(Refused, match=cause) as refused:
        CompileProcess(plugin, target)
    assert refused.value.code == INVALID_ARGUMENT
    assert "GpuTargetConfigProto" in refused.value.text


def refusal(compiler_factory, program, **how):
    with compiler_factory() as process:
        with pytest.raises(Refused) as refused:
            process.compile(program, **how)
    return refused.value


@pytest.fixture
def fresh(plugin):
    """A process that has refused something takes no further program."""
    return lambda **how: CompileProcess(plugin, TARGET, **how)


def test_more_devices_than_there_are(fresh):
    refused = refusal(lambda: fresh(devices=4), programs.summed_over_eight_devices(), devices=8)
    assert refused.code == INVALID_ARGUMENT
    assert "8 partitions on 4 devices" in refused.text


def test_more_memory_than_the_device_has(fresh):
    refused = refusal(fresh, programs.TOO_LARGE)
    assert refused.code == RESOURCE_EXHAUSTED
    assert "400000000004 bytes" in refused.text and "NVIDIA H200 has 151397597184" in refused.text


@pytest.mark.parametrize("program, cause", [
    (b"garbage", "custom op 'garbage' is unknown"),
    (b"ML\xefR\x0d garbage", "MLIR bytecode: unreadable sections"),
    (b"module { nonsense }", "custom op 'nonsense' is unknown"),
])
def test_garbage(fresh, program, cause):
    refused = refusal(fresh, program)
    assert refused.code == INVALID_ARGUMENT and cause in refused.text, refused


RAW = ["__gpu$xla.gpu.ptx", "__gpu$xla.gpu.triton", "mosaic_gpu_v2", "__cublas$lt$matmul", "my_kernel"]


@pytest.mark.parametrize("target", RAW)
@pytest.mark.parametrize("wrap, where", [
    (lambda f: f, ""), (programs.in_loop, "stablehlo.while"), (programs.in_function, r"func\.call|(?<!custom_)call @"),
], ids=["plain", "loop", "function"])
def test_kernels_of_a_client_are_refused_by_name(fresh, target, wrap, where):
    """As bytecode and as text. A process takes one program that is refused."""
    text = programs.calling(target, wrap=wrap, text=True)
    assert re.search(where, text.decode()) and b"custom_call" in text
    for program in (programs.calling(target, wrap=wrap), text):
        assert program.startswith(b"ML\xefR") == (program is not text)
        refused = refusal(fresh, program)
        assert refused.code == UNIMPLEMENTED
        assert f'"{target}" is not served on GPUs' in refused.text


def test_bytecode_in_which_a_target_cannot_be_told(compiler, fresh):
    compiler.compile(programs.not_portable(calls=False))
    refused = refusal(fresh, programs.not_portable(calls=True))
    assert refused.code == UNIMPLEMENTED
    assert "target cannot be told" in refused.text


@pytest.mark.parametrize("text, cause", [
    (programs.ALLOCATING, '"AllocateBuffer" is not served on GPUs'),
    (programs.WAITING, "infeed is not served on GPUs: nobody is at the other end"),
], ids=["memory that others left", "nobody at the other end"])
def test_what_is_no_kernel_and_hurts_others_all_the_same(fresh, text, cause):
    for program in (text.encode(), programs.artifact(text)):
        refused = refusal(fresh, program)
        assert refused.code == UNIMPLEMENTED and cause in refused.text


def test_a_worker_may_allow_raw_kernels(fresh):
    """The answer is then the plugin's own."""
    program = programs.calling("my_kernel")
    try:
        with fresh(flags=["--allow-raw-kernels=true"]) as process:
            process.compile(program)
    except Refused as refused:
        assert "is not served on GPUs" not in refused.text


def test_what_numpy_linalg_lowers_to_is_refused_with_the_way_out(fresh):
    import jax.numpy as jnp
    refused = refusal(fresh, programs.exported(jnp.linalg.inv, jnp.eye(4)))
    assert refused.code == UNIMPLEMENTED
    assert 'jax.devices("cpu")[0]' in refused.text


def test_programs_are_compiled_for_what_a_gpu_wrote(plugin):
    """By plugins that are not older than the one which wrote it there."""
    target = pathlib.Path(__file__).with_name("h100.txtpb").read_text()
    if version(plugin).startswith("0.10."):
        with pytest.raises(Refused, match="cannot read the target configuration"):
            CompileProcess(plugin, target)
        return
    with CompileProcess(plugin, target) as process:
        compiled = process.compile(programs.elementwise())
    assert "; NVIDIA H100 80GB HBM3, target " in compiled.code.plugin and b"\x7fELF" in compiled.code.native


@pytest.mark.parametrize("old, new, same", [
    ("device_memory_size: 151397597184", "device_memory_size: 85899345920", "target "),
    ('"NVIDIA H200"', '"NVIDIA H100"', "NVIDIA H"),
], ids=["memory", "model"])
def test_code_of_another_gpu_has_another_identity(plugin, compiler, old, new, same):
    changed = TARGET.replace(old, new)
    assert changed != TARGET
    with CompileProcess(plugin, changed) as other:
        theirs = other.compile(programs.DONATING).code.plugin
    ours = compiler.compile(programs.DONATING).code.plugin
    assert ours != theirs and ours.rsplit(same, 1)[0] == theirs.rsplit(same, 1)[0]
    assert new.startswith("device_memory") or "NVIDIA H100, target " in theirs


def test_code_of_another_plugin_has_another_identity(tmp_path):
    """The stand-in plugin is small enough to copy: the copy differs in a byte at its end."""
    stand_in = BIN.parent / "tests/fairway_stand_in_gpu.so"
    other = tmp_path / "plugin.so"
    other.write_bytes(stand_in.read_bytes() + b"\0")
    cpu = "stand_in_cpu_plugin.so"  # it opens this plugin, which lies elsewhere
    (tmp_path / cpu).symlink_to((stand_in.parent / cpu).resolve())
    identities = set()
    for plugin in (stand_in, other, stand_in):
        with CompileProcess(plugin, TARGET) as process:
            identities.add(process.compile(programs.DONATING).code.plugin)
    assert len(identities) == 2, identities
