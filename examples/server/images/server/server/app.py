"""An HTTP service around a model: POST /predict {"values": [1.0, ...]} with four numbers."""

import torch
from fastapi import FastAPI
from pydantic import BaseModel, Field

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
app = FastAPI()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
model.eval().to(DEVICE)


class Request(BaseModel):
    values: list[float] = Field(min_length=4, max_length=4)


@app.get("/health")
def health() -> dict[str, str]:
    return {"device": DEVICE, "torch": torch.__version__}


@app.post("/predict")
def predict(request: Request) -> dict[str, list[float]]:
    with torch.inference_mode():
        scores = model(torch.tensor(request.values, device=DEVICE))
    return {"scores": scores.tolist()}
