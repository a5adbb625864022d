# SPDX-License-Identifier: Apache-2.0
# Part of ./dev: what is given to users (docs/design/0047-the-wheel.md, 0080-packages.md, 0081-images.md).

APT_PACKAGE=(binutils dpkg-dev)  # what packing takes beside a build
APT_TEST_PACKAGES=(debootstrap lintian systemd libseccomp2 runc umoci containerd iproute2)

# packing: compiles what is packed.
packing() {
  need_packages "${APT_PACKAGE[@]}" && compile release "${DAEMONS[@]}" fairway_client
}

# package_NAME FOLDER: makes it in FOLDER, out of the release build.
package_wheel() {
  packing && "$VENV/bin/python" package/wheel.py --build "$BUILD" --out "$1"
}
package_deb() {
  packing && "$VENV/bin/python" package/deb.py --build "$BUILD" --out "$1"
}
package_tarball() {
  package_wheel "$1" && "$VENV/bin/python" package/tarball.py --out "$1"
}
cpu_plugin() { echo "$VENV"/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so; }
package_image() {
  packing && "$VENV/bin/python" package/image.py --build "$BUILD" --plugin "$(cpu_plugin)" --out "$1"
}
package_chart() {
  "$VENV/bin/python" package/chart.py --out "$1"
}
package_all() {
  package_tarball "$1" && package_deb "$1" && package_image "$1" && package_chart "$1" &&
    "$VENV/bin/python" package/sbom.py --build "$BUILD" --plugin "$(cpu_plugin)" --out "$1" &&
    (cd "$1" && sha256sum -- *.deb *.oci.tar *.spdx.json *.tar.gz *.tgz *.whl >SHA256SUMS.part && mv SHA256SUMS.part SHA256SUMS)
}

make_package() {
  local name=${1-all}
  case $name in
    wheel | deb | tarball | image | chart | all) ;;
    *) die "no package $name; ./dev package makes wheel, deb, tarball, image, chart, or all of them" ;;
  esac
  setup && "package_$name" build/package
}

# need_roots SUITE...: all at a time.
need_roots() {
  local suite making=() rc=0
  need_packages debootstrap || return 1
  for suite in "$@"; do
    need_root "$suite" & making+=($!)
  done
  for suite in "${making[@]}"; do wait "$suite" || rc=1; done
  return $rc
}

# Packs twice, then installs the wheel in bare Debian systems, which are made once, and uses it there.
run_wheel() {
  local making rc=0
  need_packages debootstrap "${APT_PACKAGE[@]}" || return 1
  need_roots bookworm trixie & making=$!
  package_wheel build/package && package_wheel build/package/again || rc=1
  wait "$making" && [ $rc = 0 ] && run_pytest_beside wheel -rsfEP tests/packaging/test_wheel.py
}

# Packs all twice, then installs the .deb in a bare Debian 12, upgrades, removes and purges it, unpacks the tarball, and runs
# containers of the images.
run_packages() {
  need_packages "${APT_TEST_PACKAGES[@]}" && need_extra_venv packages tests/packaging/requirements.txt || return 1
  rm -rf build/package/again
  package_all build/package && package_all build/package/again && need_roots bookworm &&
    run_pytest packages -rsfEP tests/packaging/test_deb.py tests/packaging/test_tarball.py \
      tests/packaging/test_image.py tests/packaging/test_containerd.py
}

# The .deb's services under a real systemd, in a Debian 12 that is booted in namespaces.
run_systemd() {
  need_packages debootstrap && package_deb build/package && need_roots bookworm && run_pytest systemd -rsfEP tests/systemd
}

# Compiles everything twice: two folders, no ccache, and the same bytes.
run_double_build() {
  local commit
  commit=$(git rev-parse HEAD) || return 1
  local folder
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
  for folder in build/double/one build/double/a-second-folder; do
    rm -rf "$folder"
    mkdir -p "$folder"
    git archive "$commit" | tar -x -C "$folder"
    mkdir "$folder/.deps" && cp -r .deps/jaxlib-0.8.2 "$folder/.deps"
    FAIRWAY_NO_CCACHE=1 "$folder/dev" package all || return 1
  done
  cmp build/double/{one,a-second-folder}/build/package/SHA256SUMS
}
