{{/* The image, by digest where one is given. */}}
{{- define "trainmaster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The name of what lies beyond the release's namespace, where it would meet what another release has there.
A namespace that ends like one of our names goes before a dot, which no namespace has in it. */}}
{{- define "trainmaster.nameOutside" -}}
{{- if eq .Release.Namespace "trainmaster-system" -}}
trainmaster
{{- else if regexMatch "(^|-)(webhook|outside|priorities|leader-election)$" .Release.Namespace -}}
{{ .Release.Namespace }}.trainmaster
{{- else -}}
trainmaster-{{ .Release.Namespace }}
{{- end -}}
{{- end }}

{{/* Whether any of these kinds is enabled: (list . "TFJob" "PyTorchJob"). */}}
{{- define "trainmaster.runs" -}}
{{- $schemes := (first .).Values.schemes -}}
{{- $found := not $schemes -}}
{{- range rest . -}}
{{- if has . $schemes -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end }}

{{- define "trainmaster.podGroups" -}}
{{- get (dict "volcano" "scheduling.volcano.sh" "kube-batch" "scheduling.incubator.k8s.io") (lower .Values.gangScheduler) | default "scheduling.x-k8s.io" -}}
{{- end }}

{{- define "trainmaster.rules" }}
{{- if include "trainmaster.runs" (list . "TFJob" "PyTorchJob" "MPIJob" "XGBoostJob" "MXJob" "PaddleJob" "JAXJob") }}
- apiGroups:
  - kubeflow.org
  resources:
{{- if include "trainmaster.runs" (list . "TFJob") }}
  - tfjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "PyTorchJob") }}
  - pytorchjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
  - mpijobs
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
  - xgboostjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxnetjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
  - paddlejobs
{{- end }}
{{- if include "trainmaster.runs" (list . "JAXJob") }}
  - jaxjobs
{{- end }}
  verbs:
  - list
  - watch
  - delete
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
- apiGroups:
  - xgboostjob.kubeflow.org
  resources:
  - xgboostjobs
  verbs:
  - list
  - watch
  - delete
{{- end }}
{{- if include "trainmaster.runs" (list . "MSJob") }}
- apiGroups:
  - mindspore.gitee.com
  resources:
  - msjobs
  verbs:
  - list
  - watch
  - delete
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
- apiGroups:
  - batch.paddlepaddle.org
  resources:
  - paddlejobs
  verbs:
  - list
  - watch
  - delete
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
- apiGroups:
  - batch.paddlepaddle.org
  resources:
  - paddlejobs
  verbs:
  - patch
{{- end }}
{{- if include "trainmaster.runs" (list . "TFJob" "PyTorchJob" "MPIJob" "XGBoostJob" "MXJob" "PaddleJob" "JAXJob") }}
- apiGroups:
  - kubeflow.org
  resources:
{{- if include "trainmaster.runs" (list . "TFJob") }}
  - tfjobs/status
{{- end }}
{{- if include "trainmaster.runs" (list . "PyTorchJob") }}
  - pytorchjobs/status
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
  - mpijobs/status
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
  - xgboostjobs/status
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxjobs/status
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxnetjobs/status
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
  - paddlejobs/status
{{- end }}
{{- if include "trainmaster.runs" (list . "JAXJob") }}
  - jaxjobs/status
{{- end }}
  verbs:
  - update
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
- apiGroups:
  - xgboostjob.kubeflow.org
  resources:
  - xgboostjobs/status
  verbs:
  - update
{{- end }}
{{- if include "trainmaster.runs" (list . "MSJob") }}
- apiGroups:
  - mindspore.gitee.com
  resources:
  - msjobs/status
  verbs:
  - update
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
- apiGroups:
  - batch.paddlepaddle.org
  resources:
  - paddlejobs/status
  verbs:
  - update
{{- end }}
{{- if include "trainmaster.runs" (list . "TFJob" "PyTorchJob" "MPIJob" "XGBoostJob" "MXJob" "PaddleJob" "JAXJob") }}
- apiGroups:
  - kubeflow.org
  resources:
{{- if include "trainmaster.runs" (list . "TFJob") }}
  - tfjobs/finalizers
{{- end }}
{{- if include "trainmaster.runs" (list . "PyTorchJob") }}
  - pytorchjobs/finalizers
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
  - mpijobs/finalizers
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
  - xgboostjobs/finalizers
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxjobs/finalizers
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxnetjobs/finalizers
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
  - paddlejobs/finalizers
{{- end }}
{{- if include "trainmaster.runs" (list . "JAXJob") }}
  - jaxjobs/finalizers
{{- end }}
  verbs:
  - update
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
- apiGroups:
  - xgboostjob.kubeflow.org
  resources:
  - xgboostjobs/finalizers
  verbs:
  - update
{{- end }}
{{- if include "trainmaster.runs" (list . "MSJob") }}
- apiGroups:
  - mindspore.gitee.com
  resources:
  - msjobs/finalizers
  verbs:
  - update
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
- apiGroups:
  - batch.paddlepaddle.org
  resources:
  - paddlejobs/finalizers
  verbs:
  - update
{{- end }}
- apiGroups:
  - ""
  resources:
  - pods
  - services
{{- if include "trainmaster.runs" (list . "MPIJob" "PaddleJob") }}
  - configmaps
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
  - serviceaccounts
{{- end }}
  verbs:
  - get
  - list
  - watch
  - create
  - patch
  - delete
{{- if include "trainmaster.runs" (list . "PyTorchJob") }}
- apiGroups:
  - autoscaling
  resources:
  - horizontalpodautoscalers
  verbs:
  - get
  - list
  - watch
  - create
  - patch
  - delete
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
- apiGroups:
  - batch
  resources:
  - jobs
  verbs:
  - get
  - list
  - watch
  - create
  - patch
  - delete
{{- end }}
{{- if .Values.gangScheduler }}
- apiGroups:
  - {{ include "trainmaster.podGroups" . }}
  resources:
  - podgroups
  verbs:
  - get
  - list
  - watch
  - create
  - patch
  - delete
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
- apiGroups:
  - ""
  resources:
  - secrets
  verbs:
  - get
  - list
  - watch
  - create
  - patch
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
- apiGroups:
  - rbac.authorization.k8s.io
  resources:
  - rolebindings
  - roles
  verbs:
  - get
  - list
  - watch
  - create
  - patch
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
- apiGroups:
  - ""
  resources:
  - pods/exec
  verbs:
  - create
{{- end }}
- apiGroups:
  - ""
  resources:
  - events
  verbs:
  - create
  - patch
{{- end }}

{{- define "trainmaster.outside" }}
{{- if include "trainmaster.runs" (list . "TFJob" "PyTorchJob" "MPIJob" "XGBoostJob" "MXJob" "PaddleJob" "JAXJob") }}
- apiGroups:
  - kubeflow.org
  resources:
{{- if include "trainmaster.runs" (list . "TFJob") }}
  - tfjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "PyTorchJob") }}
  - pytorchjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "MPIJob") }}
  - mpijobs
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
  - xgboostjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "MXJob") }}
  - mxnetjobs
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
  - paddlejobs
{{- end }}
{{- if include "trainmaster.runs" (list . "JAXJob") }}
  - jaxjobs
{{- end }}
  verbs:
  - list
{{- end }}
{{- if include "trainmaster.runs" (list . "XGBoostJob") }}
- apiGroups:
  - xgboostjob.kubeflow.org
  resources:
  - xgboostjobs
  verbs:
  - list
{{- end }}
{{- if include "trainmaster.runs" (list . "MSJob") }}
- apiGroups:
  - mindspore.gitee.com
  resources:
  - msjobs
  verbs:
  - list
{{- end }}
{{- if include "trainmaster.runs" (list . "PaddleJob") }}
- apiGroups:
  - batch.paddlepaddle.org
  resources:
  - paddlejobs
  verbs:
  - list
{{- end }}
- apiGroups:
  - ""
  resources:
  - events
  verbs:
  - create
  - patch
{{- end }}
