// Image writes a container image of a Containerfile: see internal/image.
//
//	go run ./tools/image Containerfile NAME:TAG archive.tar [ARCHITECTURE=FOLDER...]
//
// What is copied is named from the folder of now, for this machine's architecture. With
// architectures it is named from their folders, and the archive holds an image for each.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/culvert-net/culvert/internal/image"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "culvert: want a Containerfile, the image's name, the archive to write, and ARCHITECTURE=FOLDER for each of several")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, "culvert:", err)
		os.Exit(1)
	}
}

// write makes the archive.
func write(containerfile, name, archive string, architectures []string) error {
	if len(architectures) == 0 {
		i, err := image.Read(containerfile, ".")
		if err != nil {
			return err
		}
		i.Name = name
		return i.Write(archive)
	}
	var images []image.Image
	for _, a := range architectures {
		architecture, folder, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("%s: want ARCHITECTURE=FOLDER", a)
		}
		i, err := image.Read(containerfile, folder)
		if err != nil {
			return err
		}
		i.Name, i.Architecture = name, architecture
		images = append(images, i)
	}
	return image.WriteIndex(archive, images)
}
