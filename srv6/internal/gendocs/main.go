// Command gendocs prints docs/behaviors.md from the behaviour table.
package main

import (
	"log"
	"os"

	"github.com/culvert-net/culvert/srv6/internal/behaviordoc"
)

func main() {
	if err := behaviordoc.Write(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
