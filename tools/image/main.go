// Image writes a container image of a Containerfile: see internal/image.
//
//	go run ./tools/image Containerfile NAME:TAG archive.tar
package main

import (
	"fmt"
	"os"

	"github.com/culvert-net/culvert/internal/image"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "culvert: want a Containerfile, the image's name, and the archive to write")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "culvert:", err)
		os.Exit(1)
	}
}

// write makes the archive; what is copied is named from the folder of now.
func write(containerfile, name, archive string) error {
	i, err := image.Read(containerfile, ".")
	if err != nil {
		return err
	}
	i.Name = name
	return i.Write(archive)
}
