package srv6

//go:generate sh -c "go run ./internal/gendocs > ../docs/behaviors.md"
