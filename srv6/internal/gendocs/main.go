// Command gendocs writes what is generated from the behaviour table:
// docs/reference/behaviors.md and bpf/srv6/behaviors.h. It runs in srv6.
package main

import (
	"bytes"
	"io"
	"log"
	"os"

	"github.com/culvert-net/culvert/srv6/internal/behaviordoc"
)

func main() {
	log.SetFlags(0)
	write("../docs/reference/behaviors.md", behaviordoc.Write)
	write("../bpf/srv6/behaviors.h", behaviordoc.WriteHeader)
}

func write(path string, content func(io.Writer) error) {
	var b bytes.Buffer
	err := content(&b)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o644)
	}
	if err != nil {
		log.Fatalf("gendocs: %v", err)
	}
}
