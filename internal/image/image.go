package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is what one layer and a configuration say.
type Image struct {
	Name       string // with host and tag: ghcr.io/culvert-net/culvert:v1.0.0
	Files      []File // in the order of the layer
	Env        []string
	Entrypoint []string
	Cmd        []string // what Entrypoint gets, unless a pod says more
	// Architecture is a GOARCH: this machine's unless set.
	Architecture string
}

// File is a program of the image, or a symbolic link.
type File struct {
	Path string // in the image: /usr/bin/culvert
	From string // the file that it is a copy of
	Link string // or where it leads
}

// Names that engines look for in the index: containerd and Docker for the first,
// podman for the second.
const (
	containerdName = "io.containerd.image.name"
	refName        = "org.opencontainers.image.ref.name"
)

// Write makes an archive of the image.
func (i Image) Write(archive string) error {
	built, err := i.build()
	if err != nil {
		return err
	}
	return write(archive, func(index layout.Path) error { return index.AppendImage(built, named(i.Name)) })
}

// WriteIndex makes an archive of one image for several architectures.
func WriteIndex(archive string, images []Image) error {
	if len(images) == 0 {
		return errors.New("an index of no image")
	}
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		built, err := i.build()
		if err != nil {
			return fmt.Errorf("%s: %w", i.Architecture, err)
		}
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: i.Architecture},
		}})
	}
	return write(archive, func(index layout.Path) error { return index.AppendIndex(all, named(images[0].Name)) })
}

// named are the annotations by which engines find an image in an index.
func named(name string) layout.Option {
	return layout.WithAnnotations(map[string]string{containerdName: name, refName: name})
}

// write makes an archive of a layout to which fill adds something.
func write(archive string, fill func(layout.Path) error) (err error) {
	folder, err := os.MkdirTemp("", "culvert-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	index, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := fill(index); err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	out := tar.NewWriter(f)
	return errors.Join(pack(out, os.DirFS(folder)), out.Close(), f.Close())
}

// pack adds all files of a folder. They are root's and of no time: the archive depends on what is
// in them only.
func pack(out *tar.Writer, folder fs.FS) error {
	return fs.WalkDir(folder, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case e.IsDir():
			return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
		}
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		return addFile(out, name, data, 0o644)
	})
}

// addFile adds a file with these permissions.
func addFile(out *tar.Writer, name string, data []byte, mode int64) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: mode}); err != nil {
		return err
	}
	_, err := out.Write(data)
	return err
}

func (i Image) build() (v1.Image, error) {
	text, err := layer(i.Files)
	if err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	files, err := tarball.LayerFromOpener(opener, tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	whole, err := mutate.AppendLayers(base, files)
	if err != nil {
		return nil, err
	}
	c, err := whole.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.Architecture, c.OS = cmp.Or(i.Architecture, runtime.GOARCH), "linux"
	c.Config.Entrypoint, c.Config.Cmd, c.Config.Env = i.Entrypoint, i.Cmd, i.Env
	return mutate.ConfigFile(whole, c)
}

// layer is a tar file of files and of the folders that they are in. All are
// root's and of no time: the layer depends on what is in them only.
func layer(files []File) ([]byte, error) {
	text := &bytes.Buffer{}
	out := tar.NewWriter(text)
	made := map[string]bool{}
	for _, f := range files {
		name := strings.TrimPrefix(path.Clean("/"+f.Path), "/")
		for at, c := range name { // the folders above it, the highest first
			if c != '/' || made[name[:at]] {
				continue
			}
			made[name[:at]] = true
			if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name[:at+1], Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		if err := f.add(out, name); err != nil {
			return nil, fmt.Errorf("/%s: %w", name, err)
		}
	}
	err := out.Close()
	return text.Bytes(), err
}

func (f File) add(out *tar.Writer, name string) error {
	if f.Link != "" {
		return out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: f.Link, Mode: 0o777})
	}
	data, err := os.ReadFile(f.From)
	if err != nil {
		return err
	}
	return addFile(out, name, data, 0o755)
}
