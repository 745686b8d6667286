package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/dist/kubernetes"
	"github.com/culvert-net/culvert/internal/image"
	"github.com/culvert-net/culvert/internal/lab/instance"
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
	nodeImage    = "ghcr.io/culvert-net/culvert:lab"
)

// Images is the folder of image archives that nodes of kind kubelet take.
func Images(in *instance.Instance) string { return filepath.Join(instance.DiskDir, in.Name, "images") }

// writeImages writes archives of culvert's image and of that of test pods, which
// is the pause image, too: it waits, or serves HTTP by the command of its pod.
func writeImages(ctx context.Context, in *instance.Instance) error {
	in.State.Disks = instance.AddNew(in.State.Disks, Images(in))
	if err := errors.Join(in.Save(), os.MkdirAll(Images(in), 0o755)); err != nil {
		return err
	}
	pod := image.Image{Name: podImage, Files: []image.File{{Path: busybox, From: busybox}}, Env: []string{"PATH=/bin"},
		Entrypoint: []string{busybox, "sleep", "2147483647"}}
	if topology.HasSuites(in.Topology) {
		if err := writeTestImages(ctx, in); err != nil {
			return err
		}
	}
	return errors.Join(
		pod.Write(filepath.Join(Images(in), "pod.tar")),
		CulvertImage(in.Culvert, filepath.Dir(in.Culvert), nodeImage).Write(filepath.Join(Images(in), "culvert.tar")))
}

// ImportImage gives a node an image from the lab's folder.
func ImportImage(in *instance.Instance, n *topology.Node, archive string) error {
	p, _ := in.Process(n, instance.NodeProcess)
	args := kubelet.Import(containers[in.State.Variant].inNode, filepath.Base(archive))
	_, err := namespace.Output(exec.Command("nsenter", append([]string{"--all", "--target", fmt.Sprint(p.PID), "--"}, args...)...))
	return err
}

// CulvertImage is the image that dist/kubernetes/Containerfile makes, of a culvert
// binary and the plugin in a folder.
func CulvertImage(culvert, plugin, name string) image.Image {
	const folder = "/usr/bin/"
	return image.Image{Name: name, Entrypoint: []string{folder + "culvert"}, Files: []image.File{
		{Path: folder + "culvert", From: culvert},
		{Path: folder + "culvert-cni", From: filepath.Join(plugin, "culvert-cni")},
	}}
}

// Install has Kubernetes install culvert and make the pods, when all nodes are
// there.
func Install(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if list := in.Kubelets(); len(list) == 0 || n != list[len(list)-1] {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ClusterTime)
	defer cancel()
	install := installManifest
	if in.Chart != nil {
		install = installChart
	}
	if err := install(ctx, in); err != nil {
		return err
	}
	if err := waitForCulvert(ctx, in); err != nil {
		return err
	}
	// All at once: Kubernetes makes them at the same time.
	var objects []map[string]any
	for _, n := range in.Kubelets() {
		for _, p := range in.Pods(n) {
			objects = append(objects, PodObject(in, p))
		}
	}
	for _, s := range in.Services {
		objects = append(objects, serviceOf(in, s))
	}
	if err := Create(ctx, in, objects); err != nil || !topology.HasSuites(in.Topology) {
		return err
	}
	return PrepareSuites(ctx, in)
}

// installManifest applies the manifest.
func installManifest(ctx context.Context, in *instance.Instance) error {
	_, err := Kubectl(ctx, in, []byte(manifest(in)), "apply", "-f", "-")
	return err
}

// manifest is the one that is shipped, with the image that the nodes have and the version of
// CNI that their runtime takes. Where the cluster knows no IPv6 addresses of nodes nobody
// vouches for those that tunnels have: they are listed, as an operator does.
func manifest(in *instance.Instance) string {
	const version, mode = "--cni-version=", "      mode: kube\n"
	accept := mode
	if !slices.Contains(Families(in), topology.IPv6) {
		var list []string
		for _, n := range in.Kubelets() {
			for _, a := range in.Addresses(n) {
				if a.Is6() {
					list = append(list, fmt.Sprintf("%q", a.String()+"/128"))
				}
			}
		}
		accept += "      accept: {addresses: [" + strings.Join(list, ", ") + "]}\n"
	}
	return strings.NewReplacer(shippedImage, nodeImage, version+cniVersion, version+containers[in.State.Variant].cni, mode, accept).Replace(kubernetes.Manifest)
}

// waitForCulvert waits until culvert is there on all nodes.
func waitForCulvert(ctx context.Context, in *instance.Instance) error {
	if _, err := Kubectl(ctx, in, nil, "--namespace", "kube-system", "rollout", "status", "daemonset/culvert"); err != nil {
		return fmt.Errorf("culvert's DaemonSet did not come up: %w\n%s", err, Describe(in))
	}
	_, err := Kubectl(ctx, in, nil, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout", ClusterTime.String())
	return err
}

// Describe is the state of culvert's pods in Kubernetes, and the end of their logs.
func Describe(in *instance.Instance) string {
	ctx, cancel := context.WithTimeout(context.Background(), instance.ReadyTime)
	defer cancel()
	const label = "app.kubernetes.io/name=culvert"
	pods, err := Kubectl(ctx, in, nil, "--namespace", "kube-system", "get", "pods", "-o", "wide", "--selector", label)
	logs, err2 := Kubectl(ctx, in, nil, "--namespace", "kube-system", "logs", "--tail", "5", "--prefix", "--all-containers", "--selector", label)
	if err := errors.Join(err, err2); err != nil {
		return err.Error()
	}
	return string(pods) + string(logs)
}
