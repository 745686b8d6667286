package image

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func writeFile(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// eachEntry reads a tar file.
func eachEntry(t *testing.T, r io.Reader, see func(*tar.Header, string)) {
	t.Helper()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		see(h, string(data))
	}
}

// openLayout is the index of an archive, which has one manifest.
func openLayout(t *testing.T, archive string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	folder := t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	eachEntry(t, f, func(h *tar.Header, data string) {
		if h.ModTime.Unix() > 0 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s is of %s, and of user %d %s: two builds differ", h.Name, h.ModTime, h.Uid, h.Uname)
		}
		if h.Typeflag == tar.TypeReg {
			writeFile(t, filepath.Join(folder, h.Name), data)
		}
	})
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	return index, list.Manifests[0]
}

// open is the one image of an archive, and the annotations that name it.
func open(t *testing.T, archive string) (v1.Image, map[string]string) {
	t.Helper()
	index, manifest := openLayout(t, archive)
	i, err := index.Image(manifest.Digest)
	if err != nil {
		t.Fatal(err)
	}
	return i, manifest.Annotations
}

// entries are what the layer of an image makes: kind, mode, and what is in it.
func entries(t *testing.T, i v1.Image) []string {
	t.Helper()
	layers, err := i.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var seen []string
	eachEntry(t, r, func(h *tar.Header, data string) {
		seen = append(seen, h.FileInfo().Mode().String()+" "+h.Name+" "+h.Linkname+data)
	})
	return seen
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	program := writeFile(t, filepath.Join(dir, "bin", "culvert"), "the program")
	writeFile(t, filepath.Join(dir, "bin", "culvert-cni"), "the plugin")
	of := writeFile(t, filepath.Join(dir, "Containerfile"), "# Two programs.\nFROM scratch\n\nCOPY bin/culvert bin/culvert-cni /usr/bin/\nENV PATH=/usr/bin\nENTRYPOINT [\"/usr/bin/culvert\", \"run\"]\n")
	i, err := Read(of, dir)
	if err != nil {
		t.Fatal(err)
	}
	i.Name = "example.net/culvert:v1"
	i.Files = append(i.Files, File{Path: "/usr/sbin/culvert", Link: "../bin/culvert"})
	archive := filepath.Join(dir, "image.tar")
	if err := i.Write(archive); err != nil {
		t.Fatal(err)
	}

	got, names := open(t, archive)
	if err := validate.Image(got); err != nil {
		t.Error(err)
	}
	if want := map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": i.Name}; !maps.Equal(names, want) {
		t.Errorf("named by %v, want %v", names, want)
	}
	want := []string{"drwxr-xr-x usr/ ", "drwxr-xr-x usr/bin/ ", "-rwxr-xr-x usr/bin/culvert the program", "-rwxr-xr-x usr/bin/culvert-cni the plugin",
		"drwxr-xr-x usr/sbin/ ", "Lrwxrwxrwx usr/sbin/culvert ../bin/culvert"}
	if files := entries(t, got); !slices.Equal(files, want) {
		t.Errorf("the layer has %q, want %q", files, want)
	}
	c, err := got.ConfigFile()
	if err != nil || c.OS != "linux" || c.Architecture == "" || !slices.Equal(c.Config.Entrypoint, []string{"/usr/bin/culvert", "run"}) ||
		!slices.Equal(c.Config.Env, []string{"PATH=/usr/bin"}) {
		t.Errorf("the configuration is %+v, %v", c, err)
	}
	if media, err := got.MediaType(); err != nil || media != types.OCIManifestSchema1 {
		t.Errorf("the manifest is of type %s, %v", media, err)
	}

	// The image is its files, whenever they were made.
	if err := os.Chtimes(program, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := i.Write(archive); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, archive)
	first, err := got.Digest()
	second, err2 := again.Digest()
	if err := errors.Join(err, err2); err != nil || first != second {
		t.Errorf("%s, and then %s, %v", first, second, err)
	}
}

func TestWriteFails(t *testing.T) {
	i := Image{Files: []File{{Path: "/bin/a", From: filepath.Join(t.TempDir(), "none")}}}
	if err := i.Write(filepath.Join(t.TempDir(), "image.tar")); err == nil || !strings.Contains(err.Error(), "/bin/a: ") {
		t.Errorf("without the program: %v", err)
	}
	if err := (Image{}).Write(filepath.Join(t.TempDir(), "none", "image.tar")); err == nil {
		t.Error("there is no folder")
	}
}

func TestRead(t *testing.T) {
	for _, line := range []string{"FROM debian", "COPY a", "COPY a b", "COPY --from=build a /b/", "ENV PATH", `ENV A="b c"`, "ENTRYPOINT culvert", "RUN make"} {
		file := writeFile(t, filepath.Join(t.TempDir(), "Containerfile"), "FROM scratch\n"+line+"\n")
		if _, err := Read(file, "."); err == nil || !strings.Contains(err.Error(), "Containerfile:2: ") {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none"), "."); err == nil {
		t.Error("there is no file")
	}
}

// The image of the DaemonSet: both programs, where the manifest looks for them.
func TestContainerfile(t *testing.T) {
	i, err := Read("../../dist/kubernetes/Containerfile", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []File{{Path: "/usr/bin/culvert", From: "bin/culvert"}, {Path: "/usr/bin/culvert-cni", From: "bin/culvert-cni"}}
	if !slices.Equal(i.Files, want) || !slices.Equal(i.Entrypoint, []string{"/usr/bin/culvert"}) {
		t.Errorf("%+v", i)
	}
}

func TestWriteIndex(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "index.tar")
	var images []Image
	for _, arch := range []string{"amd64", "arm64"} {
		images = append(images, Image{Name: "example.net/culvert:v1", Architecture: arch, Entrypoint: []string{"/culvert"},
			Files: []File{{Path: "/culvert", From: writeFile(t, filepath.Join(dir, arch, "culvert"), "of "+arch)}}})
	}
	if err := WriteIndex(archive, images); err != nil {
		t.Fatal(err)
	}
	index, manifest := openLayout(t, archive)
	if manifest.Annotations[containerdName] != "example.net/culvert:v1" || manifest.Annotations[refName] != "example.net/culvert:v1" {
		t.Errorf("annotations: %v", manifest.Annotations)
	}
	all, err := index.ImageIndex(manifest.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Error(err)
	}
	list, err := all.IndexManifest()
	if err != nil || len(list.Manifests) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, m := range list.Manifests {
		one, err := all.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := one.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if arch := images[i].Architecture; m.Platform.Architecture != arch || c.Architecture != arch || !slices.ContainsFunc(entries(t, one), func(e string) bool { return strings.Contains(e, "of "+arch) }) {
			t.Errorf("%s: platform %v, configuration of %s, %q", arch, m.Platform, c.Architecture, entries(t, one))
		}
	}
	if err := WriteIndex(archive, nil); err == nil {
		t.Error("an index of nothing is written")
	}
}
