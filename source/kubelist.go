package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// lists has functions that list objects whose size tenants decide. They pass each object to keep before they decode the
// next object. So only one complete object is in memory at a time, also if the API server sends all in one answer.
type lists struct {
	pods func(ctx context.Context, opts metav1.ListOptions, keep func(*corev1.Pod)) (metav1.ListMeta, error)
	// podMeta lists pods with their metadata only.
	podMeta func(ctx context.Context, opts metav1.ListOptions, keep func(*corev1.Pod)) (metav1.ListMeta, error)
	nads    func(
		ctx context.Context, opts metav1.ListOptions, keep func(*nadv1.NetworkAttachmentDefinition),
	) (metav1.ListMeta, error)
}

// Media types of lists: whole objects, or only their metadata (Kubernetes API Concepts, "Metadata-only fetches").
const (
	wholeObjects = "application/json"
	metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// stream lists a resource in all namespaces. client is the client of the resource's API group.
func stream[T any](
	ctx context.Context, client rest.Interface, resource, accept string, opts metav1.ListOptions, keep func(*T),
) (metav1.ListMeta, error) {
	return streamIn(ctx, client, "", resource, accept, opts, keep)
}

// streamIn is stream in one namespace; "": all.
func streamIn[T any](
	ctx context.Context, client rest.Interface, namespace, resource, accept string, opts metav1.ListOptions,
	keep func(*T),
) (metav1.ListMeta, error) {
	request := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).SetHeader("Accept", accept).
		SpecificallyVersionedParams(&opts, scheme.ParameterCodec, corev1.SchemeGroupVersion)
	body, err := request.Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer body.Close()
	list, err := decodeList(body, keep)
	if err != nil {
		return metav1.ListMeta{}, fmt.Errorf("list %s: %w", resource, err)
	}
	return list, nil
}

// decodeList reads a list in JSON. A truncated list is an error: callers would conclude that the missing objects were
// deleted.
func decodeList[T any](text io.Reader, keep func(*T)) (meta metav1.ListMeta, err error) {
	decoder := json.NewDecoder(text)
	if err := expect(decoder, '{'); err != nil {
		return meta, err
	}
	var raw json.RawMessage // one buffer for all objects
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return meta, whole(err)
		}
		switch key {
		case "items":
			err = decodeItems(decoder, &raw, keep)
		case "metadata":
			err = decoder.Decode(&meta)
		default:
			err = decoder.Decode(&raw)
		}
		if err != nil {
			return meta, whole(err)
		}
	}
	return meta, expect(decoder, '}')
}

func decodeItems[T any](decoder *json.Decoder, raw *json.RawMessage, keep func(*T)) error {
	if token, err := decoder.Token(); err != nil || token == nil { // null: an empty list
		return err
	} else if token != json.Delim('[') {
		return errors.New("its items are not a list")
	}
	for decoder.More() {
		if err := decoder.Decode(raw); err != nil {
			return err
		}
		item := new(T)
		if err := utiljson.Unmarshal(*raw, item); err != nil {
			return err
		}
		keep(item)
	}
	return expect(decoder, ']')
}

func expect(decoder *json.Decoder, expected json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != expected {
		err = fmt.Errorf("%v where %v is wanted", token, expected)
	}
	return whole(err)
}

// whole replaces io.EOF by io.ErrUnexpectedEOF.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
