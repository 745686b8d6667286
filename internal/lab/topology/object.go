package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// plurals of the resources that labs have objects of.
var plurals = map[string]string{
	"Node": "nodes", "ConfigMap": "configmaps", "Namespace": "namespaces", "Service": "services", "EndpointSlice": "endpointslices",
	"CustomResourceDefinition": "customresourcedefinitions", "SRv6Policy": "srv6policies",
}

// ObjectPath is where an object is in the API.
func ObjectPath(o map[string]any) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	var v struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return "", err
	}
	if plurals[v.Kind] == "" || v.Metadata.Name == "" || v.APIVersion == "" {
		return "", fmt.Errorf("object: %s: give apiVersion, metadata.name, and a kind of %v", text, slices.Sorted(maps.Keys(plurals)))
	}
	path := "/apis/" + v.APIVersion
	if v.APIVersion == "v1" {
		path = "/api/v1"
	}
	if v.Metadata.Namespace != "" {
		path += "/namespaces/" + v.Metadata.Namespace
	}
	return path + "/" + plurals[v.Kind] + "/" + v.Metadata.Name, nil
}
