"""ResNet-50, as torchvision defines it (bottlenecks 3-4-6-3, stride in the 3x3 convolution), without torchvision."""

from __future__ import annotations

from torch import Tensor, nn

STAGES = (3, 4, 6, 3)
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut (He et al. 2015, v1.5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


class ResNet50(nn.Module):
    """`width` is that of the first stage: 64 is the real one (25.6 million parameters)."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inputs = [], width
        for number, blocks in enumerate(STAGES):
            wide = width * 2**number
            stage = []
            for block in range(blocks):
                stage.append(Bottleneck(inputs, wide, 2 if number and not block else 1))
                inputs = wide * EXPANSION
            stages.append(nn.Sequential(*stage))
        self.stages = nn.Sequential(*stages)
        self.classify = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.classify(self.stages(self.stem(images)))
        return scores
