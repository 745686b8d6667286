package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/culvert-net/culvert/dist/kubernetes"
	"github.com/culvert-net/culvert/internal/image"
	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const (
	busybox  = "/bin/busybox"
	podImage = "lab.culvert.net/pod:1"
	// shippedImage is the one of the manifest, and culvertImage the one that the
	// nodes have.
	shippedImage = "ghcr.io/culvert-net/culvert:latest"
	culvertImage = "ghcr.io/culvert-net/culvert:lab"
)

// images is the folder of image archives that nodes of kind kubelet take.
func (in *instance) images() string { return filepath.Join(diskDir, in.name, "images") }

// writeImages writes archives of culvert's image and of that of test pods, which
// is the pause image, too: it waits, and serves HTTP where it is told to.
func (in *instance) writeImages() error {
	in.state.Disks = addNew(in.state.Disks, in.images())
	if err := errors.Join(in.save(), os.MkdirAll(in.images(), 0o755)); err != nil {
		return err
	}
	pod := image.Image{Name: podImage, Files: []image.File{{Path: busybox, From: busybox}}, Env: []string{"PATH=/bin"},
		Entrypoint: []string{busybox, "sleep", "2147483647"}}
	return errors.Join(
		pod.Write(filepath.Join(in.images(), "pod.tar")),
		culvertOf(in.culvert, filepath.Dir(in.culvert), culvertImage).Write(filepath.Join(in.images(), "culvert.tar")))
}

// importImage gives a node an image from the lab's folder.
func (in *instance) importImage(n *topology.Node, archive string) error {
	p, _ := in.process(n, nodeProcess)
	args := kubelet.Import(containers[in.state.Variant].inNode, filepath.Base(archive))
	_, err := namespace.Output(exec.Command("nsenter", append([]string{"--all", "--target", fmt.Sprint(p.PID), "--"}, args...)...))
	return err
}

// culvertOf is the image that dist/kubernetes/Containerfile makes, of a culvert
// binary and the plugin in a folder.
func culvertOf(culvert, plugin, name string) image.Image {
	const folder = "/usr/bin/"
	return image.Image{Name: name, Entrypoint: []string{folder + "culvert"}, Files: []image.File{
		{Path: folder + "culvert", From: culvert},
		{Path: folder + "culvert-cni", From: filepath.Join(plugin, "culvert-cni")},
	}}
}

// install has Kubernetes install culvert and make the pods, when all nodes are
// there.
func (in *instance) install(ctx context.Context, n *topology.Node) error {
	if list := in.Kubelets(); len(list) == 0 || n != list[len(list)-1] {
		return nil
	}
	if err := in.installCulvert(ctx); err != nil {
		return err
	}
	return in.createPods(ctx)
}

// installCulvert applies the manifest that is shipped, with the image that the
// nodes have and the version of CNI that their runtime takes, and waits until it is
// there on all nodes.
func (in *instance) installCulvert(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	const version = "--cni-version="
	text := strings.NewReplacer(shippedImage, culvertImage, version+cniVersion, version+containers[in.state.Variant].cni).Replace(kubernetes.Manifest)
	if _, err := in.kubectl(ctx, []byte(text), "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := in.kubectl(ctx, nil, "--namespace", "kube-system", "rollout", "status", "daemonset/culvert"); err != nil {
		return fmt.Errorf("culvert's DaemonSet did not come up: %w\n%s", err, in.describe())
	}
	_, err := in.kubectl(ctx, nil, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout", clusterTime.String())
	return err
}

// describe is what Kubernetes says of culvert's pods, and they of themselves.
func (in *instance) describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	const label = "app.kubernetes.io/name=culvert"
	pods, err := in.kubectl(ctx, nil, "--namespace", "kube-system", "get", "pods", "-o", "wide", "--selector", label)
	logs, err2 := in.kubectl(ctx, nil, "--namespace", "kube-system", "logs", "--tail", "5", "--prefix", "--all-containers", "--selector", label)
	if err := errors.Join(err, err2); err != nil {
		return err.Error()
	}
	return string(pods) + string(logs)
}
