package topology

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// plurals of the resources that labs have objects of.
var plurals = map[string]string{
	"Node": "nodes", "ConfigMap": "configmaps", "Namespace": "namespaces", "Service": "services", "EndpointSlice": "endpointslices",
	"CustomResourceDefinition": "customresourcedefinitions", "SRv6Policy": "srv6policies",
}

// ObjectPath is where an object is in the API.
func ObjectPath(o map[string]any) (string, error) {
	v := unstructured.Unstructured{Object: o}
	if plurals[v.GetKind()] == "" || v.GetName() == "" || v.GetAPIVersion() == "" {
		text, err := json.Marshal(o)
		return "", errors.Join(fmt.Errorf("object: %s: give apiVersion, metadata.name, and a kind of %v", text, keys(plurals)), err)
	}
	path := "/apis/" + v.GetAPIVersion()
	if v.GetAPIVersion() == "v1" {
		path = "/api/v1"
	}
	if namespace := v.GetNamespace(); namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + plurals[v.GetKind()] + "/" + v.GetName(), nil
}
