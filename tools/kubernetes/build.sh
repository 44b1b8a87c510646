#!/usr/bin/env bash
# build.sh OUT [COMMAND...]: Kubernetes 1.20.2 (kube-apiserver, kube-controller-manager, kube-scheduler by default) from
# Debian 12's source package, with Debian's Go and without any other network. Two to four minutes on two cores.
set -euo pipefail
out=$(mkdir -p "$1" && realpath "$1"); shift
commands=${*:-kube-apiserver kube-controller-manager kube-scheduler}
sha=b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc
work=$(mktemp -d); trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
say() { echo "kubernetes: $*" >&2; }

say "installing the Go toolchain and etcd"
if ! command -v go >/dev/null || ! command -v etcd >/dev/null || [[ ! -d /usr/share/gocode/src/github.com/modern-go/reflect2 ]]; then
  [[ $(id -u) = 0 ]] || { say "run as root, or: apt-get install golang-go etcd-server golang-github-modern-go-reflect2-dev dpkg-dev"; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    golang-go etcd-server golang-github-modern-go-reflect2-dev >/dev/null
fi

say "fetching Debian's source package"
# A deb-src twin of the machine's own entry, in an apt configuration of its own: the machine's is left as it is.
mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/src"
sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$work/apt/parts/source.sources"
apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/parts"
  -o "Dir::State::lists=$work/apt/lists" -o APT::Sandbox::User=root)
(cd "$work/src" && "${apt[@]}" update && "${apt[@]}" source --download-only kubernetes)
tarball=$(echo "$work"/src/kubernetes_*.orig.tar.gz)
echo "$sha  $tarball" | sha256sum --check --quiet
tar xzf "$tarball" -C "$work/src"

# Go 1.19 refuses this go.mod with -mod=vendor; in GOPATH mode the same vendor directory is used without complaint.
export GO111MODULE=off GOFLAGS= GOPATH=$work/gopath GOCACHE=$work/cache CGO_ENABLED=0 GOGC=${GOGC:-off}
root=$GOPATH/src/k8s.io/kubernetes
mkdir -p "$(dirname "$root")"; mv "$work/src/kubernetes-1.20.2" "$root"; cd "$root"
# The vendored reflect2 crashes under Go 1.18 and later on the first CustomResourceDefinition; Debian has its successor.
rm -rf vendor/github.com/modern-go/reflect2
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go/reflect2
# From Go 1.16 on, this check takes the empty string for null and refuses it in every custom resource; released servers of
# 1.20 are of Go 1.15, where it never holds, and later ones do not have it.
zero=' || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))'
check=vendor/k8s.io/kube-openapi/pkg/validation/validate/type.go
grep -qF "$zero" "$check"  # or there is nothing to mend, and this is to be looked at
sed -i "s/$zero//" "$check"
flags=(-trimpath -p "$(nproc)" -tags providerless,dockerless -gcflags=all=-dwarf=false)

say "generating the one file that the package lacks (openapi), half a minute"
go build "${flags[@]}" -ldflags "-s -w" -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$(grep -rl --include='*.go' '^// *+k8s:openapi-gen=' cmd pkg plugin vendor/k8s.io/*/ \
  | grep -Ev '^vendor/k8s.io/(code-generator|sample-apiserver)/|_test\.go$' | xargs -n1 dirname | LC_ALL=C sort -u \
  | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
# The tool needs GOROOT named, since -trimpath left it without one: else it cannot resolve time.Duration.
GOROOT=$(go env GOROOT) "$work/openapi-gen" -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi \
  -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations" 2>/dev/null

say "compiling $commands, two to three minutes"
link="-s -w"
for package in component-base/version client-go/pkg/version; do
  package=k8s.io/kubernetes/vendor/k8s.io/$package
  link+=" -X $package.gitVersion=v1.20.2 -X $package.gitMajor=1 -X $package.gitMinor=20 -X $package.gitTreeState=clean"
  link+=" -X $package.gitCommit=faecb196815e248d3ecfb03c680a4507229c2a56 -X $package.buildDate=2021-01-13T13:20:00Z"
done
mkdir -p "$work/bin"
# shellcheck disable=SC2046  # one word per command is meant
go build "${flags[@]}" -ldflags "$link" -o "$work/bin/" $(printf './cmd/%s ' $commands)
mv "$work"/bin/* "$out/"
say "done: $(ls "$out" | paste -sd' ')"
